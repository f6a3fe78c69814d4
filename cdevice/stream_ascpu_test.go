package cdevice_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/errno"
)

// Exported streams of RecordReader.AsCPU and ArrayReader.AsCPU: get_next waits for the event of each item.

// asCPU exports the AsCPU of a reader, which it releases.
func (k kind) asCPU(t *testing.T, ctx context.Context, r *cdevice.RecordReader) cStream {
	t.Helper()
	return k.export(t, made(t, r)(r.AsCPU(ctx)))
}

func TestStreamOfAsCPUWaitsForEvents(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		event := &testEvent{}
		testEvents[34] = event
		b := batchOnDevice(t, extDev, 34)
		defer b.Release()
		r, err := cdevice.NewRecordReader(b.Schema(), device.ExtDev, yielding(nil, b, b))
		require.NoError(t, err)
		s := k.asCPU(t, background, r)
		for i := range 2 {
			assert.Equal(t, i, event.waits)
			out := s.newArray()
			require.Zero(t, s.getNext(out))
			assert.Equal(t, i+1, event.waits)
			out.release()
		}
	})
}

// The end of the context ends a wait, and the stream with it: with an errno and a text, and
// for good.
func TestContextEndsAStreamOfAsCPU(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
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
			b := batchOnDevice(t, stuck, 1)
			r, err := cdevice.NewRecordReader(b.Schema(), stuck.Type, yielding(nil, b))
			require.NoError(t, err)
			ctx, cancel := ctx()
			s := k.asCPU(t, ctx, r)
			start := time.Now()
			for range 2 {
				assert.EqualValues(t, errno.Code(want), s.getNext(s.newArray()))
				assert.Contains(t, s.lastError(), ": context ")
			}
			assert.Less(t, time.Since(start), 2*time.Second)
			var schema abi.ArrowSchema
			assert.Zero(t, s.getSchema(&schema), "the schema is there all the same")
			cdevice.ReleaseStruct(cdevice.SchemaFromPtr(addressOf(&schema)))
			s.release()
			cancel()
			b.Release()
		}
	})
}

// Once the context is done, the reader is not called any more: neither by get_next nor for ready
// batches.
func TestEndedContextAsksTheReaderNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		ctx, cancel := context.WithCancel(background)
		r := asked(t, nil, numbered(t, 3)...)
		defer r.Release()
		r.Retain()
		s := k.asCPU(t, ctx, r)
		b, code := nextOfStream(t, s)
		require.Zero(t, code)
		b.Release()
		cancel()
		for range 2 {
			_, code = nextOfStream(t, s)
			assert.EqualValues(t, errno.Code(syscall.ECANCELED), code)
			assert.Equal(t, "cdevice: read: context canceled", s.lastError())
		}
		require.True(t, r.Next())
		assert.Equal(t, 1, numberOf(t, r.RecordBatch()), "the next one is there for others")
	})
}

// A plain stream refuses device memory item by item, as AsCPU of each refuses it: the type of the reader does not
// say whether the CPU can access the memory.
func TestPlainStreamOfDeviceMemory(t *testing.T) {
	checkLeaks(t)
	for _, id := range []device.ID{cuda, {Type: device.ROCM}, {Type: device.Metal}} {
		a, _ := onDevice(t, id, 0)
		r, err := cdevice.NewArrayReader(a.Field(), id.Type, func(yield func(*cdevice.Array, error) bool) { yield(a, nil) })
		require.NoError(t, err)
		s := plainKind.newStream()
		require.NoError(t, s.exportArrays(r))
		r.Release()
		for range 2 {
			assert.EqualValues(t, errno.Code(syscall.ENOTSUP), s.getNext(s.newArray()))
			assert.Contains(t, s.lastError(), fmt.Sprintf("Array.DeviceID = %s, want memory that the CPU can access", id))
		}
		s.release()
		a.Release()
	}
}
