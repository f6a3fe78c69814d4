//go:build cgo && unix

package pyextension

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// The race detector says which lock is missing. A round has no order in it but that of the locks.
func together(rounds int, all ...func(i int)) {
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() {
			for i := range rounds {
				f(i)
			}
		})
	}
	running.Wait()
}

// Calls are begun, awaited and cancelled on any thread, while functions are registered and described.
func TestCallsOfManyThreads(t *testing.T) {
	nothingIsLeft(t)
	register(t, "echo", func(_ context.Context, n int64) int64 { return n })
	t.Cleanup(func() {
		functions.mu.Lock()
		defer functions.mu.Unlock()
		functions.set(nil)
	})
	echo, describe, exit := request(t, "echo", int64(7)), request(t, ".functions"), request(t, ".exit")
	ends := func(req []byte) reply {
		number, data := callInMain(req, 0)
		if number != 0 {
			_, data = waitFor(number, -1)
		}
		return decodeReply(t, data)
	}
	await := func(int) { assert.EqualValues(t, 7, ends(echo).value) }
	cancel := func(int) {
		if number, _ := callInMain(echo, 0); number != 0 {
			server{}.Cancel(number)
		}
	}
	together(200, await, await, cancel, cancel,
		func(i int) {
			await(i)                                       // takes as long as the others
			Func(fmt.Sprintf("another%d", i/2), func() {}) // each of them twice, which is an error
		},
		func(i int) {
			await(i)
			_ = Check()
		},
		func(int) { ends(describe) },
		func(int) { assert.Empty(t, ends(exit).text) })
	assert.ErrorContains(t, Check(), "the name is registered twice")
}

// A reader is read by one call at a time, while others lend it and give batches back.
func TestReaderOfManyThreads(t *testing.T) {
	nothingIsLeft(t)
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.Int64Builder).Append(1)
	b, err := wrapped(builder.NewRecordBatch())
	require.NoError(t, err)
	defer b.Release()
	for round := range 50 {
		source, err := cdevice.NewRecordReaderFunc(context.Background(), schema, device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
			b.Retain()
			return b, nil
		}, nil)
		require.NoError(t, err)
		s := newScope()
		r := newReader(source, s)
		next := func(int) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Microsecond)
			defer cancel()
			if b, err := r.Next(ctx); err == nil {
				b.Release()
			}
		}
		lend := func(int) {
			if lent, err := r.rest("a test"); err == nil {
				lent.Release()
			}
		}
		unread := func(int) { r.unread([]*cdevice.RecordBatch{b}) }
		last := func(f func()) func(int) {
			return func(i int) {
				if i == 19 {
					f()
				}
			}
		}
		if round%2 == 0 {
			together(20, next, unread, lend, last(func() { _, _ = r.take("a test") }))
			r.release()
		} else { // a call that was cancelled may be reading when the reader is closed
			together(20, next, unread, last(r.release))
		}
		s.close()
	}
}
