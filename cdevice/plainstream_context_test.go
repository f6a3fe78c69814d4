package cdevice_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// Each batch's event is waited for before get_next gives it.
func TestPlainStreamWaitsForEvents(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[34] = event
	a, _ := onDevice(t, extDev, 34)
	defer a.Release()
	r, err := cdevice.NewArrayReader(a.Field(), device.ExtDev, func(yield func(*cdevice.Array, error) bool) {
		if yield(a, nil) {
			yield(a, nil)
		}
	})
	require.NoError(t, err)
	defer r.Release()
	s := garbagePlainStream()
	cpu, err := r.AsCPU(background)
	require.NoError(t, err)
	defer cpu.Release()
	require.NoError(t, cdevice.ExportArrayReader(cpu, s))
	defer cdevice.ReleaseStruct(s)
	for i := range 2 {
		assert.Equal(t, i, event.waits)
		out := garbagePlain()
		require.Zero(t, bridge.CallPlainGetNext(plainStream(s), plainArray(out)))
		assert.Equal(t, i+1, event.waits)
		cdevice.ReleaseStruct(out)
	}
}

// The end of the context ends a wait, and the stream with it: with an errno and a text, and
// for good.
func TestContextEndsAPlainStream(t *testing.T) {
	checkLeaks(t)
	for want, ctx := range map[syscall.Errno]func() (context.Context, context.CancelFunc){
		syscall.ETIMEDOUT: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(background, 20*time.Millisecond)
		},
		syscall.ECANCELED: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		a, _ := onDevice(t, stuck, 1)
		r, err := cdevice.NewArrayReader(a.Field(), stuck.Type, func(yield func(*cdevice.Array, error) bool) { yield(a, nil) })
		require.NoError(t, err)
		ctx, cancel := ctx()
		r = made(t, r)(r.AsCPU(ctx))
		s := garbagePlainStream()
		require.NoError(t, cdevice.ExportArrayReader(r, s))
		start := time.Now()
		for range 2 {
			assert.EqualValues(t, want, bridge.CallPlainGetNext(plainStream(s), plainArray(garbagePlain())))
			assert.Contains(t, plainError(s), ": context ")
		}
		assert.Less(t, time.Since(start), 2*time.Second)
		var schema abi.ArrowSchema
		assert.Zero(t, bridge.CallPlainGetSchema(plainStream(s), &schema), "the schema is there all the same")
		cdevice.ReleaseStruct(cdevice.SchemaFromPtr(addressOf(&schema)))
		cdevice.ReleaseStruct(s)
		cancel()
		r.Release()
		a.Release()
	}
}

// Once the context is done, the reader is not called any more: neither by get_next nor for ready
// batches.
func TestEndedContextAsksTheReaderNothing(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancel(background)
	r := asked(t, nil, numbered(t, 3)...)
	defer r.Release()
	cpu, err := r.AsCPU(ctx)
	require.NoError(t, err)
	defer cpu.Release()
	s := garbagePlainStream()
	require.NoError(t, cdevice.ExportRecordReader(cpu, s))
	defer cdevice.ReleaseStruct(s)
	b, code := askPlain(t, s)
	require.Zero(t, code)
	b.Release()
	cancel()
	for range 2 {
		_, code = askPlain(t, s)
		assert.EqualValues(t, syscall.ECANCELED, code)
		assert.Equal(t, "cdevice: read: context canceled", plainError(s))
	}
	require.True(t, r.Next())
	assert.Equal(t, 1, numberOf(t, r.RecordBatch()), "the next one is there for others")
}

// A stream that is over has no error of its context.
func TestEndedPlainStreamOutlivesItsContext(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	r := asked(t, nil)
	r = made(t, r)(r.AsCPU(ctx))
	s := garbagePlainStream()
	require.NoError(t, cdevice.ExportRecordReader(r, s))
	r.Release()
	defer cdevice.ReleaseStruct(s)
	for range 2 {
		b, code := askPlain(t, s)
		assert.Zero(t, code)
		assert.Nil(t, b)
		cancel()
	}
}
