package cudaalloc_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Waits of this package, each with the accesses that only it orders.

// Trim gives back staging memory, after waiting for its copies.
func TestTrimWaitsForWhatIsStaged(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	s, own := memoryOn(t, gpu, 1000)
	src := make([]byte, 1000)
	defer runtime.KeepAlive(src)
	e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: pointer(src), Size: 1000}}, s)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	assert.NotZero(t, gpu.ReadStats().Pinned.Live)
	require.NoError(t, gpu.Trim(background))
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// memoryOn returns a stream of the GPU and memory that was allocated on it.
func memoryOn(t *testing.T, gpu *cudaalloc.Device, size int64) (device.Stream, device.Memory) {
	t.Helper()
	s, err := gpu.NewStream()
	require.NoError(t, err)
	own, err := gpu.Allocate(background, size, s)
	require.NoError(t, err)
	return s, own
}

// Trim waits for memory that its functions free in stream order, before it trims the pool.
func TestTrimWaitsForWhatItFrees(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	s, own := memoryOn(t, gpu, 1000)
	cached := true
	gpu.OnTrim(func() {
		if cached {
			cached = false
			assert.NoError(t, own.Free(s))
		}
	})
	require.NoError(t, gpu.Trim(background))
	assert.False(t, cached)
	done, err := s.(*cudaalloc.Stream).Query()
	require.NoError(t, err)
	assert.True(t, done)
	require.NoError(t, s.Close())
}

// Memory whose freeing the driver refused is freed later, behind the work of its stream.
func TestFreeThatFailsWaits(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s, own := memoryOn(t, gpu, 1000)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, 1000, s))
	m.Sim.Fail("cuMemFreeAsync", 1, unknownError)
	require.Error(t, own.Free(s))
	require.NoError(t, gpu.Flush(background))
	require.NoError(t, s.Close())
}

// Functions of AfterWork may give memory back to caches: Trim waits for them before it empties the
// caches. The function takes long enough to show a Trim that does not wait.
func TestTrimComesAfterWhatIsPutOff(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := cudaalloc.NewManagedAllocator(gpu)
	require.NoError(t, err)
	b := mem.Allocate(1000)
	trimmed, begun := make(chan struct{}), make(chan struct{})
	gpu.OnTrim(sync.OnceFunc(func() { close(trimmed) }))
	gpu.AfterWork(func() {
		close(begun)
		select {
		case <-trimmed:
			t.Error("caches were emptied first")
		case <-time.After(100 * time.Millisecond):
		}
		mem.Free(b)
	})
	<-begun
	require.NoError(t, gpu.Trim(background))
	held := mem.ReadStats().Held
	assert.Zero(t, held)
	<-trimmed
}

// A pending free keeps its event: the event may be closed, and unrelated stuck work holds nothing
// up.
func TestFunctionsAndFreesWaitForTheirEvent(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	s, err := gpu.NewStream()
	require.NoError(t, err)
	stuck := m.Stranger(t, gpu).Hold(t)
	var called atomic.Bool
	// waits makes something wait for an event that is closed then, and that is complete after
	// open.
	waits := func(name string, wait func(device.Event), over func() bool) {
		open := m.Hold(t, s)
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, s.Record(e))
		m.Sim.ResetCounters()
		wait(e)
		require.NoError(t, e.Close())
		assert.Zero(t, m.Sim.Calls("cuEventDestroy"), name)
		assert.False(t, over(), name)
		open()
		within.Eventually(t, name, over)
	}
	waits("OnComplete", func(e device.Event) { e.OnComplete(func() { called.Store(true) }) }, called.Load)
	own, err := gpu.Allocate(background, size, s)
	require.NoError(t, err)
	waits("FreeAfter", func(e device.Event) {
		require.NoError(t, gpu.Memset(own.Ptr(), 1, size, s))
		require.NoError(t, s.Record(e))
		require.NoError(t, own.FreeAfter(e))
	}, func() bool { return gpu.ReadStats().Device.Live == 0 })
	stuck()
	require.NoError(t, s.Close())
}

// An event that the driver cannot query proves nothing: frees that wait for it wait for all work
// instead.
func TestFreesWaitWhereEventsCannotBeAsked(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	s, own := memoryOn(t, gpu, size)
	open := m.Hold(t, s)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, size, s))
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	m.Sim.ResetCounters()
	m.Sim.FailTimes("cuEventQuery", 1, 1000, unknownError)
	defer m.Sim.Fail("", 0, 0)
	var called atomic.Bool
	e.OnComplete(func() { called.Store(true) })
	require.NoError(t, own.FreeAfter(e))
	within.Eventually(t, "the context is synchronised", func() bool { return m.Sim.Calls("cuCtxSynchronize") > 0 })
	assert.False(t, called.Load())
	assert.EqualValues(t, size, gpu.ReadStats().Device.Live)
	open()
	require.NoError(t, gpu.Flush(background))
	assert.True(t, called.Load())
	assert.Zero(t, gpu.ReadStats().Device.Live)
	m.Sim.Fail("", 0, 0)
	require.NoError(t, e.Close())
	require.NoError(t, s.Close())
}

// Work on a stream comes after an event that the stream waits for.
func TestStreamWaitsForAnEvent(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	first, own := memoryOn(t, gpu, size)
	second, err := gpu.NewStream()
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, size, first))
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, first.Record(e))
	require.NoError(t, second.WaitEvent(e))
	require.NoError(t, gpu.Memset(own.Ptr(), 2, size, second))
	require.NoError(t, own.Free(second))
	require.NoError(t, e.Close())
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
}

// A copy stream with pending work is not reused for the next copy.
func TestGPUCopyStreamThatWaitsIsNotGivenOut(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	first, err := gpu.CopyStream()
	require.NoError(t, err)
	open := m.Hold(t, first)
	require.NoError(t, first.Close())
	second, err := gpu.CopyStream()
	require.NoError(t, err)
	assert.NotEqual(t, first.Handle(), second.Handle())
	open()
	require.NoError(t, second.Close())
}

// A prefetch is work of the stream that it is given.
func TestPrefetchIsWorkOfItsStream(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	mem, err := cudaalloc.NewManagedAllocator(gpu)
	require.NoError(t, err)
	b := mem.Allocate(1000)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	for name, prefetch := range map[string]func(device.Ptr, int64, device.Stream) error{
		"to the GPU": gpu.Prefetch, "to the host": gpu.PrefetchToHost,
	} {
		require.NoError(t, prefetch(pointer(b), int64(len(b)), s))
		done, err := s.(*cudaalloc.Stream).Query()
		require.NoError(t, err)
		assert.False(t, done, name)
		require.NoError(t, s.Synchronize(background))
	}
	mem.Free(b)
	require.NoError(t, s.Close())
}
