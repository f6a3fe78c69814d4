//go:build cgo && unix

package pyextension

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

func TestCancel(t *testing.T) {
	nothingIsLeft(t)
	ended := make(chan error, 1)
	register(t, "waits", func(ctx context.Context, b *cdevice.RecordBatch) *cdevice.RecordBatch {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return b
	})
	number, _ := server{}.Call(request(t, "waits", exported(t, 1)), time.Millisecond)
	require.NotZero(t, number)
	still, _ := server{}.Wait(number, time.Millisecond)
	assert.Equal(t, number, still)
	server{}.Cancel(number)
	assert.ErrorIs(t, <-ended, context.Canceled)
	gone, data := server{}.Wait(number, -1)
	assert.Zero(t, gone)
	assert.Contains(t, decodeReply(t, data).text, fmt.Sprint(number))
}

// A cancelled read loses no batch.
func TestCancelledNext(t *testing.T) {
	nothingIsLeft(t)
	let := make(chan struct{})
	register(t, "slow", func(ctx context.Context, b *cdevice.RecordBatch) (*cdevice.RecordReader, error) {
		b.Retain()
		n := int64(0)
		return cdevice.NewRecordReaderFunc(context.Background(), b.Schema(), b.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
			<-let
			assert.NoError(t, ctx.Err(), "the context lives as long as the reader")
			n++
			return b.Slice(0, n)
		}, b.Release)
	})
	stream := ask(t, "slow", exported(t, 1, 2, 3)).value.(replied)
	number, _ := server{}.Call(request(t, ".next", own1(stream.handle)), time.Millisecond)
	require.NotZero(t, number)
	server{}.Cancel(number)
	close(let)
	for i := range 2 {
		next := ask(t, ".next", own1(stream.handle)).value.(replied)
		assert.EqualValues(t, i+1, next.rows)
		server{}.Release(next.handle)
	}
	server{}.Release(stream.handle)
}

// A call that was cancelled before it began reads nothing: the stream may be closed by then, and its context has ended.
func TestCancelledBeforeItBegins(t *testing.T) {
	nothingIsLeft(t)
	register(t, "stream", func(b *cdevice.RecordBatch) (*cdevice.RecordReader, error) {
		b.Retain()
		return cdevice.NewRecordReaderFunc(context.Background(), b.Schema(), b.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
			t.Error("a batch was read")
			return nil, io.EOF
		}, b.Release)
	})
	stream := ask(t, "stream", exported(t, 1)).value.(replied)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		_, err := handle.Get(handle.Word(stream.handle)).(*object).reader.Next(ctx)
		assert.ErrorIs(t, err, context.Canceled)
	}
	server{}.Release(stream.handle)
}

// A read_all that is cancelled, or ends with an error, loses no batch: the next read returns those it has read.
func TestInterruptedReadAll(t *testing.T) {
	nothingIsLeft(t)
	let, third := make(chan error), make(chan struct{})
	register(t, "slow", func(ctx context.Context, b *cdevice.RecordBatch) (*cdevice.RecordReader, error) {
		b.Retain()
		n := int64(0)
		return cdevice.NewRecordReaderFunc(context.Background(), b.Schema(), b.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
			if n++; n == 3 {
				close(third)
			}
			if n > 2 {
				if err := <-let; err != nil {
					return nil, err
				}
			}
			return b.Slice(0, n)
		}, b.Release)
	})
	stream := ask(t, "slow", exported(t, 1, 2, 3, 4)).value.(replied)
	number, _ := server{}.Call(request(t, ".read_all", own1(stream.handle)), 0)
	require.NotZero(t, number)
	<-third
	server{}.Cancel(number)
	read := func(rows int64) {
		t.Helper()
		next := ask(t, ".next", own1(stream.handle)).value.(replied)
		assert.Equal(t, rows, next.rows)
		server{}.Release(next.handle)
	}
	read(1)
	read(2)
	let <- nil
	read(3)
	go func() {
		let <- nil
		let <- errors.New("lost the file")
	}()
	assert.Contains(t, ask(t, ".read_all", own1(stream.handle)).text, "lost the file")
	read(4)
	assert.Contains(t, ask(t, ".next", own1(stream.handle)).text, "lost the file")
	server{}.Release(stream.handle)
}
