package cudaalloc_test

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestTheHostCannotTouchDeviceMemory(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		if m.Sim == nil {
			t.Skip("whether it faults on a real GPU is for its driver to say; the simulator is strict")
		}
		for _, d := range m.Devices(t) {
			for _, size := range []int64{1, 5000} {
				mem, err := d.Allocate(background, size, nil)
				require.NoError(t, err)
				require.NoError(t, d.Legacy().Synchronize(background))
				for _, offset := range []int64{0, size - 1} {
					p := mem.Ptr() + device.Ptr(offset)
					assert.Equal(t, !d.ID().Type.CPUAccessible(), touch(p, false), "%s: read", d.ID())
					assert.Equal(t, !d.ID().Type.CPUAccessible(), touch(p, true), "%s: write", d.ID())
				}
				require.NoError(t, mem.Free(nil))
			}
		}
	})
}

// Writes of the host to page-locked and managed memory are visible to the GPU, and the reverse.
func TestGPUHostReadableMemory(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, d := range m.Devices(t) {
			if !d.CPUAccessible() {
				continue
			}
			const n = 3000
			a, err := d.Allocate(background, n, nil)
			require.NoError(t, err)
			own, err := d.Own().Allocate(background, n, nil)
			require.NoError(t, err)
			for i := range at(a.Ptr(), n) {
				at(a.Ptr(), n)[i] = byte(i)
			}
			there := []device.Range{{Dst: own.Ptr(), Src: a.Ptr(), Size: n}}
			require.NoError(t, d.Copy(there, nil))
			require.NoError(t, d.Memset(a.Ptr(), 0, n, nil))
			require.NoError(t, d.Legacy().Synchronize(background))
			assert.Equal(t, make([]byte, n), at(a.Ptr(), n))
			back := []device.Range{{Dst: a.Ptr(), Src: own.Ptr(), Size: n}}
			require.NoError(t, d.Copy(back, nil))
			require.NoError(t, d.Legacy().Synchronize(background))
			for i, v := range at(a.Ptr(), n) {
				require.Equal(t, byte(i), v)
			}
			require.NoError(t, a.Free(nil))
			require.NoError(t, own.Free(nil))
		}
	})
}

// No call leaves a context current on its thread, on one that had none and on one
// that had another.
func TestThreadsAreLeftUnchanged(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		gpu := m.GPUs[0]
		assert.Zero(t, cudaalloc.Current(gpu))
		s, err := gpu.NewStream()
		assert.NoError(t, err)
		mem, err := gpu.Allocate(background, 100, s)
		assert.NoError(t, err)
		assert.NoError(t, gpu.Memset(mem.Ptr(), 1, 100, s))
		_, err = gpu.Allocate(background, 1<<50, s)
		assert.Error(t, err)
		assert.NoError(t, mem.Free(s))
		assert.NoError(t, s.Synchronize(background))
		assert.NoError(t, s.Close())
		assert.Zero(t, cudaalloc.Current(gpu))

		m.Sim.Fail("cuCtxSetCurrent", 2, unknownError) // the one that restores
		_, _, err = gpu.MemoryInfo()
		assert.NoError(t, err, "what was asked for has been done")
		_, met := m.Sim.Failed()
		assert.True(t, met)
		assert.Zero(t, cudaalloc.Current(gpu), "restoring is tried again")
	})
	wg.Wait()
}

// calling is an allocator that uses a GPU when something is freed, which a foreign
// thread does by releasing an exported array.
type calling struct {
	memory.Allocator
	free func()
}

func (c calling) Free(b []byte) {
	c.free()
	c.Allocator.Free(b)
}

// Copies are one crossing into C and one call of the driver per range, wherever the
// context has to be made current.
func TestCopyCalls(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := gpu.Allocate(background, 1000, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, 1000, nil))
	list := make([]device.Range, 100)
	for i := range list {
		list[i] = device.Range{Dst: mem.Ptr() + device.Ptr(5*i), Src: mem.Ptr() + device.Ptr(500+5*i), Size: 5}
	}
	m.Sim.ResetCounters()
	require.NoError(t, gpu.Copy(append(list, device.Range{}), nil), "an empty range is no call")
	calls := m.Sim.Report().Calls
	assert.Equal(t, map[string]int{"cuMemcpyAsync": 100, "cuCtxGetCurrent": 1, "cuCtxSetCurrent": 2}, calls)
	allocations := testing.AllocsPerRun(10, func() {
		if err := gpu.Copy(list, nil); err != nil {
			t.Error(err)
		}
	})
	assert.Zero(t, allocations)

	list[7].Size = 1 << 40
	err = gpu.Copy(list, nil)
	assert.ErrorIs(t, err, cudaalloc.InvalidValue)
	assert.ErrorContains(t, err, "cuda: cuMemcpyAsync(0x")
	assert.ErrorContains(t, err, ", 1099511627776) on cuda:0")
	require.NoError(t, mem.Free(nil))
}

func TestEventsComeFromAFreeList(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	m.Sim.ResetCounters()
	for range 1000 {
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, gpu.Legacy().Record(e))
		require.NoError(t, e.Synchronize(background))
		require.NoError(t, e.Close())
	}
	assert.Equal(t, 1, m.Sim.Calls("cuEventCreate"))
	assert.Equal(t, 0, m.Sim.Calls("cuEventDestroy"))

	// One that is pending is no good to the next.
	s, err := gpu.NewStream()
	require.NoError(t, err)
	open, err := cudaalloc.Hold(s)
	require.NoError(t, err)
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	require.NoError(t, e.Close())
	assert.Equal(t, 1, m.Sim.Calls("cuEventDestroy"))
	open()
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, s.Close())
}

// A wait that its caller gave up uses the stream no more: it can be destroyed at once.
func TestAbandonedWaitsLeaveNothing(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	s, err := m.GPUs[0].NewStream()
	require.NoError(t, err)
	open, err := cudaalloc.Hold(s)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(background)
	wait := make(chan error)
	go func() { wait <- s.Synchronize(ctx) }()
	for m.Sim.Calls("cuStreamQuery") < 2 {
		runtime.Gosched()
	}
	cancel()
	require.ErrorIs(t, <-wait, context.Canceled)
	m.Sim.ResetCounters()
	require.NoError(t, s.Close())
	assert.Equal(t, 1, m.Sim.Calls("cuStreamDestroy"))
	assert.Zero(t, m.Sim.Calls("cuStreamSynchronize"))
	open()
}

func TestTrimGivesThePoolsMemoryBack(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	require.NoError(t, m.GPUs[0].Trim(background))
	assert.Equal(t, 1, m.Sim.Calls("cuMemPoolTrimTo"))
	assert.Equal(t, 1, m.Sim.Calls("cuMemPoolSetAttribute"), "the pool keeps what is freed")
}

// However many blocks are freed while the GPU is busy, they cost a synchronisation
// or two.
func TestOneSynchronisationForMany(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{NoPools: true})
	gpu := m.GPUs[0]
	s, err := gpu.NewStream()
	require.NoError(t, err)
	var all []device.Memory
	for range 1000 {
		mem, err := gpu.Allocate(background, 1000, s)
		require.NoError(t, err)
		all = append(all, mem)
	}
	open, err := cudaalloc.Hold(s)
	require.NoError(t, err)
	m.Sim.ResetCounters()
	var ran sync.WaitGroup
	for _, mem := range all {
		require.NoError(t, mem.Free(s), "does not wait")
		ran.Add(1)
		gpu.AfterWork(ran.Done)
	}
	assert.EqualValues(t, 2000, gpu.ReadStats().Waiting)
	assert.EqualValues(t, 1_000_000, gpu.ReadStats().Device.Live, "until it is freed")
	assert.Zero(t, m.Sim.Calls("cuMemFree"))
	open()
	ran.Wait()
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, m.Sim.Calls("cuMemFree"), "it is kept for later")
	assert.LessOrEqual(t, m.Sim.Calls("cuCtxSynchronize"), 3)
	assert.Zero(t, gpu.ReadStats().Waiting)
	require.NoError(t, s.Close())
}

// Without memory, pending frees are done first; only then does the allocation fail.
func TestOutOfMemory(t *testing.T) {
	for name, options := range map[string]cudasim.Options{
		"pools": {Memory: 64 << 20, HostMemory: 64 << 20}, "no pools": {Memory: 64 << 20, HostMemory: 64 << 20, NoPools: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, options)
			for _, d := range []*cudaalloc.Device{m.GPUs[0], m.GPUs[0].Pinned()} {
				s, err := d.NewStream()
				require.NoError(t, err)
				first, err := d.Allocate(background, 40<<20, s)
				require.NoError(t, err)
				_, err = d.Allocate(background, 40<<20, s)
				assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
				open, err := cudaalloc.Hold(s)
				require.NoError(t, err)
				require.NoError(t, first.Free(s)) // not free as long as the stream is held
				done := make(chan error, 1)
				go func() {
					second, err := d.Allocate(background, 40<<20, d.Legacy())
					if err == nil {
						err = second.Free(d.Legacy())
					}
					done <- err
				}()
				open()
				assert.NoError(t, <-done, "%s: waits for what is being freed", d.ID())
				small, err := d.Allocate(background, 1<<20, s)
				require.NoError(t, err, "usable afterwards")
				require.NoError(t, small.Free(s))
				require.NoError(t, s.Synchronize(background))
				require.NoError(t, s.Close())
			}
		})
	}
}

func TestGPUManyAllocationsLeaveNothing(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	n := 100_000
	if testing.Short() {
		n = 1000
	}
	gpu := m.GPUs[0]
	before := gpu.ReadStats().Device
	s, err := gpu.NewStream()
	require.NoError(t, err)
	for i := range n {
		mem, err := gpu.Allocate(background, int64(1+i%5000), s)
		require.NoError(t, err)
		require.NoError(t, mem.Free(s))
	}
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, s.Close())
	require.NoError(t, gpu.Flush(background)) // without pools, memory is freed in the background
	stats := gpu.ReadStats().Device
	assert.EqualValues(t, n, stats.Total-before.Total)
	assert.Zero(t, stats.Live)
	if m.Sim != nil {
		assert.LessOrEqual(t, stats.Peak, max(before.Peak, 5000))
	}
}

func TestGPUStats(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	before := gpu.ReadStats()
	a, err := gpu.Allocate(background, 1000, nil)
	require.NoError(t, err)
	b, err := gpu.Pinned().Allocate(background, 2000, nil)
	require.NoError(t, err)
	s := gpu.ReadStats()
	assert.EqualValues(t, 1000, s.Device.Live-before.Device.Live)
	assert.EqualValues(t, 1, s.Device.Allocations)
	assert.EqualValues(t, 2000, s.Pinned.Live-before.Pinned.Live)
	assert.GreaterOrEqual(t, s.Pinned.Peak, int64(2000))
	require.NoError(t, a.Free(nil))
	require.NoError(t, b.Free(nil))
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Device.Live+gpu.ReadStats().Pinned.Live)
}

func TestGPUDefaultStreamsAndPriorities(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const n = 1000
	mem, err := gpu.Allocate(background, n, nil)
	require.NoError(t, err)
	host, err := gpu.Pinned().Allocate(background, n, nil)
	require.NoError(t, err)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, s := range []*cudaalloc.Stream{gpu.Legacy(), gpu.PerThread()} {
		require.NoError(t, gpu.Memset(mem.Ptr(), byte(i+1), n, s))
		require.NoError(t, gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: mem.Ptr(), Size: n}}, s))
		require.NoError(t, s.Synchronize(background))
		assert.Equal(t, n, bytes.Count(at(host.Ptr(), n), []byte{byte(i + 1)}))
		require.NoError(t, s.Close())
		assert.Error(t, s.Synchronize(background), "closed, for this value")
	}
	require.NoError(t, mem.Free(nil))
	require.NoError(t, host.Free(nil))

	own, err := gpu.NewStream()
	require.NoError(t, err)
	open, err := cudaalloc.Hold(gpu.Legacy())
	require.NoError(t, err)
	assert.NoError(t, own.Synchronize(background), "own streams do not wait for the legacy stream")
	open()
	require.NoError(t, own.Close())

	least, greatest, err := gpu.Priorities()
	require.NoError(t, err)
	assert.LessOrEqual(t, greatest, least)
	for _, p := range []int{least, greatest, -100, 100} {
		s, err := gpu.NewStreamWithPriority(p)
		require.NoError(t, err)
		require.NoError(t, s.Synchronize(background))
		require.NoError(t, s.Close())
	}
}

// A wait that a context may end is made on another thread, and still is for the
// per-thread stream of the caller's.
func TestGPUCancellableWaitForThePerThreadStream(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	s := m.GPUs[0].PerThread()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open := m.Hold(t, s)
	ctx, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, s.Synchronize(ctx), context.DeadlineExceeded)
	open()
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	assert.NoError(t, s.Synchronize(ctx))
	done, err := s.Query()
	require.NoError(t, err)
	assert.True(t, done)
}

// A wait for completed work is one query, not a waiting thread.
func TestGPUNoWaitForWhatIsDone(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	e, err := m.GPUs[0].NewEvent()
	require.NoError(t, err)
	require.NoError(t, e.Synchronize(ctx))
	if m.Sim != nil {
		assert.Equal(t, 1, m.Sim.Calls("cuEventQuery"))
		assert.Zero(t, m.Sim.Calls("cuEventSynchronize"))
	}
	require.NoError(t, e.Close())
}
