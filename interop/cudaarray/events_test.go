package cudaarray_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

var numbers = arrow.PrimitiveTypes.Int64

// streams are those that an interface can name, each with its number; 0: the handle.
func streams(t *testing.T, gpu *cudaalloc.Device) map[string]device.Stream {
	zero, err := gpu.WrapStream(0)
	require.NoError(t, err)
	return map[string]device.Stream{"a stream": cudatest.NewStream(t, gpu), "legacy": gpu.Legacy(), "per thread": gpu.PerThread(), "0": zero}
}

func numberOf(s device.Stream) int64 { return max(int64(s.Handle()), 1) }

// onOneThread keeps the test on its thread, whose the per-thread default stream is.
func onOneThread(t *testing.T) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
}

// later is an array that work on a stream, which is held back, is going to fill; open lets it go.
func later(t *testing.T, m *cudatest.Machine, text string) (a *cdevice.Array, open func()) {
	t.Helper()
	s := cudatest.NewStream(t, m.GPUs[0])
	open = m.Hold(t, s)
	return copied(t, fromJSON(t, numbers, text), m.GPUs[0], cdevice.WithStream(s)), open
}

// A consumer that works on the stream of the interface works behind the producer.
func TestGPUConsumersWaitForTheStream(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for name, s := range streams(t, gpu) {
			t.Run(name, func(t *testing.T) {
				onOneThread(t)
				target, err := gpu.Allocate(background, 24, s)
				require.NoError(t, err)
				require.NoError(t, s.Synchronize(background))
				a, open := later(t, m, `[1,2,3]`)
				i := exported(t, a, cudaarray.WithStream(s))
				require.NotNil(t, i.Stream)
				assert.Equal(t, numberOf(s), *i.Stream)

				consumer, err := gpu.WrapStream(uintptr(*i.Stream))
				require.NoError(t, err)
				require.NoError(t, gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: i.Data.Ptr, Size: 24}}, consumer))
				done, err := gpu.NewEvent()
				require.NoError(t, err)
				require.NoError(t, consumer.Record(done))
				staysPending(t, done)
				open()
				require.NoError(t, done.Synchronize(background))
				require.NoError(t, done.Close())
				got := cudaarray.Interface{Shape: []int64{3}, TypeStr: "<i8", Data: cudaarray.Data{Ptr: target.Ptr()}}
				assert.Equal(t, "[1 2 3]", values(t, gpu, got))
				require.NoError(t, target.Free(s))
			})
		}
	})
}

// staysPending fails if the event is complete soon.
func staysPending(t *testing.T, e device.Event) {
	t.Helper()
	for range 5 {
		time.Sleep(time.Millisecond)
		done, err := e.Query()
		require.NoError(t, err)
		require.False(t, done)
	}
}

// Without a stream, consumers cannot be told of pending work, even if it happens to be
// done.
func TestGPUExportWithoutStreamNeedsNoEvent(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		a, open := later(t, m, `[1,2,3]`)
		const want = "cudaarray: export: Array = an array with an event, want one without: WithStream orders consumers behind it, Array.Synchronize waits for it: invalid"
		_, err := cudaarray.Export(a)
		assert.EqualError(t, err, want)
		open()
		require.NoError(t, m.GPUs[0].Flush(background))
		_, err = cudaarray.Export(slice(t, a, 0, 1))
		assert.EqualError(t, err, want, "also when it is complete")
		part := slice(t, a, 1, 3)
		require.NoError(t, part.Synchronize(background))
		assert.Equal(t, "[2 3]", values(t, m.GPUs[0], exported(t, part)))
	})
}

// An imported array has an event behind the producer's work.
func TestGPUImportWaitsForTheStream(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		source := ready(t, fromJSON(t, numbers, `[4,5,6]`), gpu)
		for name, s := range streams(t, gpu) {
			t.Run(name, func(t *testing.T) {
				onOneThread(t)
				target, err := gpu.Allocate(background, 24, s)
				require.NoError(t, err)
				open := m.Hold(t, s)
				require.NoError(t, gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: source.Buffers()[1], Size: 24}}, s))
				i := cudaarray.Interface{Shape: []int64{3}, TypeStr: "<i8", Data: cudaarray.Data{Ptr: target.Ptr()}, Version: 3, Stream: number(numberOf(s))}
				a, err := cudaarray.Import(i, cdevice.Lifetime{Release: func() { assert.NoError(t, target.Free(s)) }}, cudaarray.WithDevice(gpu))
				require.NoError(t, err)
				done, err := a.Ready()
				require.NoError(t, err)
				assert.False(t, done)
				open()
				assert.Equal(t, "[4 5 6]", text(t, a))
				a.Release()
				flush(t, gpu)
			})
		}
	})
}

// The producer's release is called after pending work of a consumer of an export, on a stream
// that no call named.
func TestGPUMemoryIsKeptForConsumers(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	source := ready(t, fromJSON(t, numbers, `[4,5,6]`), gpu)
	released := new(atomic.Int32)
	for _, opts := range [][]cudaarray.ExportOption{nil, {cudaarray.WithStream(gpu.Legacy())}} {
		released.Store(0)
		a := producers(t, source, gpu, released)
		exported(t, a, opts...)
		open := m.Stranger(t, gpu).Hold(t)
		a.Release()
		time.Sleep(5 * time.Millisecond)
		assert.Zero(t, released.Load())
		open()
		flush(t, gpu)
		assert.EqualValues(t, 1, released.Load())
	}
	a := producers(t, source, gpu, released)
	exported(t, a, cudaarray.WithMask(mask(t, m)))
	a.Release()
}

// producers is an array that came from a C struct, whose release is not deferred unless work uses
// the array.
func producers(t *testing.T, source *cdevice.Array, gpu *cudaalloc.Device, released *atomic.Int32) *cdevice.Array {
	t.Helper()
	out := new(cdevice.CArrowDeviceArray)
	require.NoError(t, cdevice.ExportArray(source, out, nil))
	a, err := cdevice.ImportArrayWithType(out, numbers, cdevice.WithDevice(gpu), cdevice.WithReleaser(func(release func()) {
		release()
		released.Add(1)
	}))
	require.NoError(t, err)
	return a
}

// mask is a mask of three elements.
func mask(t *testing.T, m *cudatest.Machine) *cdevice.Array {
	t.Helper()
	return onGPU(t, m, arrow.PrimitiveTypes.Uint8, `[1,0,1]`)
}

// A driver that fails while the event is made leaks nothing, and the memory is released.
func TestImportWhereTheDriverFails(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	i := exported(t, onGPU(t, m, numbers, `[1,2,3]`), cudaarray.WithStream(gpu.Legacy()))
	take := func() error {
		released := 0
		a, err := cudaarray.Import(i, cdevice.Lifetime{Release: func() { released++ }}, cudaarray.WithDevice(gpu))
		if err == nil {
			a.Release()
		}
		flush(t, gpu)
		assert.Equal(t, 1, released)
		return err
	}
	require.NoError(t, gpu.Trim(background)) // no event is on the free list
	m.Sim.ResetCounters()
	require.NoError(t, take())
	met := 0
	for _, function := range []string{"cuEventCreate", "cuEventRecord"} {
		require.NoError(t, gpu.Trim(background))
		m.Sim.Fail(function, 1, 999)
		err := take()
		if _, failed := m.Sim.Failed(); failed {
			met++
		}
		m.Sim.Fail("", 0, 0)
		assert.Error(t, err, function)
	}
	assert.Equal(t, 2, met)
}
