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

// What is staged and not copied yet is bounded: Upload waits for the oldest chunk before
// it fills its memory again.
func TestUploadWaitsForRoom(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const chunk, chunks = 16 << 20, 6 // four may be in flight
	content := make([]byte, chunks*chunk)
	defer runtime.KeepAlive(content)
	for i := range chunks {
		content[i*chunk] = byte(i + 1)
	}
	s, err := gpu.NewStream()
	require.NoError(t, err)
	own, err := gpu.Allocate(background, int64(len(content)), s)
	require.NoError(t, err)
	m.Sim.Pause()
	done := make(chan device.Event, 1)
	go func() {
		e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: pointer(content), Size: int64(len(content))}}, s)
		assert.NoError(t, err)
		done <- e
	}()
	for m.Sim.Calls("cuEventQuery") < 100 && len(done) == 0 {
		runtime.Gosched()
	}
	assert.Empty(t, done, "it has not waited for room, although nothing was copied")
	m.Sim.Resume()
	e := <-done
	require.NotNil(t, e)
	require.NoError(t, e.Close())

	back := goPinned(t, chunks)
	var list []device.Range
	for i := range back {
		list = append(list, device.Range{Dst: pointer(back[i:]), Src: own.Ptr() + device.Ptr(i*chunk), Size: 1})
	}
	require.NoError(t, gpu.Copy(list, s))
	require.NoError(t, s.Synchronize(background))
	assert.Equal(t, []byte{1, 2, 3, 4, 5, 6}, back)
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// Plain memory may be changed when Upload returns, and what is uploaded next does not
// change what was uploaded before, although both are staged in memory of one cache.
func TestGPUUploadsDoNotShareStaging(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		const n, size = 20, 5000
		var streams []device.Stream
		for range 3 {
			s, err := gpu.NewStream()
			require.NoError(t, err)
			streams = append(streams, s)
		}
		var all []device.Memory
		source := make([]byte, size)
		for i := range n {
			s := streams[i%len(streams)]
			own, err := gpu.Allocate(background, size, s)
			require.NoError(t, err)
			fill(source, byte(i))
			e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: pointer(source), Size: size}}, s)
			require.NoError(t, err)
			require.NoError(t, e.Close())
			all = append(all, own)
		}
		want, got := make([]byte, size), goPinned(t, size)
		for i, own := range all {
			s := streams[i%len(streams)]
			require.NoError(t, gpu.Copy([]device.Range{{Dst: pointer(got), Src: own.Ptr(), Size: size}}, s))
			require.NoError(t, s.Synchronize(background))
			fill(want, byte(i))
			require.Equal(t, want, got, "upload %d", i)
			require.NoError(t, own.Free(s))
		}
		for _, s := range streams {
			require.NoError(t, s.Close())
		}
	})
}

// goPinned is Go memory that copies may write to until the test ends.
func goPinned(t *testing.T, n int) []byte {
	b := make([]byte, n)
	pins := new(runtime.Pinner)
	pins.Pin(&b[0])
	t.Cleanup(pins.Unpin)
	return b
}

func fill(b []byte, value byte) {
	for i := range b {
		b[i] = value
	}
}

// The event of an upload is behind all of it: a consumer on another stream needs nothing
// else.
func TestGPUEventOfAnUploadCoversIt(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		const size = 4096
		producer, err := gpu.NewStream()
		require.NoError(t, err)
		consumer, err := gpu.NewStream()
		require.NoError(t, err)
		locked, err := gpu.Pinned().Allocate(background, size, nil)
		require.NoError(t, err)
		fill(at(locked.Ptr(), size), 2)
		m.HostWrite(locked.Ptr(), size)
		plain := make([]byte, size)
		fill(plain, 1)
		own, err := gpu.Allocate(background, 3*size, producer)
		require.NoError(t, err)
		require.NoError(t, gpu.Memset(own.Ptr()+2*size, 3, size, producer))
		e, err := gpu.Upload(background, []device.Range{
			{Dst: own.Ptr(), Src: pointer(plain), Size: size}, {Dst: own.Ptr() + size, Src: locked.Ptr(), Size: size},
		}, producer)
		require.NoError(t, err)
		require.NoError(t, consumer.WaitEvent(e))
		require.NoError(t, e.Synchronize(background))
		fill(at(locked.Ptr(), size), 9)
		m.HostWrite(locked.Ptr(), size)
		got := goPinned(t, 3*size)
		require.NoError(t, gpu.Copy([]device.Range{{Dst: pointer(got), Src: own.Ptr(), Size: 3 * size}}, consumer))
		require.NoError(t, consumer.Synchronize(background))
		for i := range 3 {
			assert.Equal(t, byte(i+1), got[i*size])
			assert.Equal(t, byte(i+1), got[(i+1)*size-1])
		}
		require.NoError(t, e.Close())
		require.NoError(t, own.Free(consumer))
		require.NoError(t, locked.Free(nil))
		require.NoError(t, producer.Close())
		require.NoError(t, consumer.Close())
	})
}

// The same of an upload that needs no staging.
func TestEventOfAnUploadWithoutStagingWaits(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	s, err := gpu.NewStream()
	require.NoError(t, err)
	locked, err := gpu.Pinned().Allocate(background, size, nil)
	require.NoError(t, err)
	own, err := gpu.Allocate(background, size, s)
	require.NoError(t, err)
	open := m.Hold(t, s)
	e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: locked.Ptr(), Size: size}}, s)
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	done, err := e.Query()
	require.NoError(t, err)
	assert.False(t, done)
	open()
	require.NoError(t, e.Synchronize(background))
	require.NoError(t, e.Close())
	require.NoError(t, locked.FreeAfter(nil))
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// Memory of an allocator that a copy reads is given back behind the copy by AfterWork:
// its next user may write to it at once.
func TestGPUManagedMemoryIsGivenBackBehindWork(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		mem, err := cudaalloc.NewManaged(m.GPUs[0], 0)
		if err != nil {
			require.ErrorIs(t, err, device.ErrNotSupported)
			t.Skip("no managed memory")
		}
		cudatest.GivenBackBehindWork(t, m, mem)
	})
}

// Trim gives back what copies were staged in: it waits for them first.
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

// Trim waits for what its own functions free in stream order, before it asks the pool for
// the memory.
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

// Memory that was staged in, and that no event is behind, is given back behind all work.
func TestStagingWithoutAnEventWaits(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	const size = 1000
	s, own := memoryOn(t, gpu, size)
	m.Sim.Fail("cuEventRecord", 1, unknownError)
	src := make([]byte, size)
	defer runtime.KeepAlive(src)
	_, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: pointer(src), Size: size}}, s)
	require.ErrorContains(t, err, "cuEventRecord")
	next, err := gpu.AllocateHost(background, size)
	require.NoError(t, err)
	m.HostWrite(next.Ptr(), size)
	fill(at(next.Ptr(), size), 1)
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, next.Free(nil))
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// What AfterWork puts off may give memory back to caches: Trim has it done before it empties
// them. The function gives a Trim that does not the time to show it.
func TestTrimComesAfterWhatIsPutOff(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := cudaalloc.NewManaged(gpu, 0)
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

// What waits for an event keeps it: the event may be closed, and what other code does not
// get done holds up nothing.
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

// An event that the driver refuses to be asked about proves nothing: what waits for it waits
// for all work instead.
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

// A copy between two GPUs comes after the work on its stream.
func TestCopyBetweenGPUsWaitsForItsStream(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	here, there := m.GPUs[0], m.GPUs[1]
	const size = 1000
	s, err := here.NewStream()
	require.NoError(t, err)
	from, err := here.Allocate(background, size, s)
	require.NoError(t, err)
	to, err := there.Allocate(background, size, nil)
	require.NoError(t, err)
	require.NoError(t, there.Legacy().Synchronize(background))
	require.NoError(t, here.Memset(from.Ptr(), 1, size, s))
	require.NoError(t, here.Copy([]device.Range{{Dst: to.Ptr(), Src: from.Ptr(), Size: size}}, s))
	require.NoError(t, from.Free(s))
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, to.FreeAfter(nil))
	require.NoError(t, s.Close())
}

// A stream for copies on which work waits is not given to the next one who copies.
func TestCopyStreamThatWaitsIsNotGivenOut(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
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
	mem, err := cudaalloc.NewManaged(gpu, 0)
	require.NoError(t, err)
	b := mem.Allocate(1000)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	for name, prefetch := range map[string]func([]byte, device.Stream) error{
		"to the GPU": mem.Prefetch, "to the host": mem.PrefetchToHost,
	} {
		require.NoError(t, prefetch(b, s))
		done, err := s.(*cudaalloc.Stream).Query()
		require.NoError(t, err)
		assert.False(t, done, name)
		require.NoError(t, s.Synchronize(background))
	}
	mem.Free(b)
	require.NoError(t, s.Close())
}
