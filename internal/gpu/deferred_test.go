package gpu_test

import (
	"fmt"
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

// A function that is called on the goroutine of OnComplete is guarded like any other.
func TestPanicOfAFunctionThatIsCalledAtOnce(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	before := gpu.ReadStats().CallbackPanics
	assert.NotPanics(t, func() { e.OnComplete(func() { panic("on purpose") }) })
	assert.Equal(t, before+1, gpu.ReadStats().CallbackPanics)
	require.NoError(t, e.Close())
}

// Flush also waits for blocks that a cache was given and does not keep.
func TestFlushLeavesNothingWaiting(t *testing.T) {
	for name, o := range map[string]cudasim.Options{"in order": {}, "lazy": {Lazy: true}, "delayed": {Delay: 100 * time.Microsecond}} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, o)
			gpu := m.GPUs[0]
			s, err := gpu.NewStream()
			require.NoError(t, err)
			limited(t, gpu, func(l *cudaalloc.Limits) { l.PinnedIdle = 0 })
			for range 50 {
				host, err := gpu.Pinned().Allocate(background, 10_000, s)
				require.NoError(t, err)
				require.NoError(t, gpu.Memset(host.Ptr(), 1, 10_000, s))
				require.NoError(t, host.Free(s))
				require.NoError(t, gpu.Flush(background))
				require.Zero(t, gpu.ReadStats().Waiting)
			}
			require.NoError(t, s.Close())
		})
	}
}

// Many functions that block are run beside others, which need not wait long.
func TestManyBlockedFunctions(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const blocked = 200
	gate := make(chan struct{})
	var all sync.WaitGroup
	all.Add(blocked)
	for range blocked {
		gpu.AfterWork(func() { <-gate; all.Done() })
	}
	called := make(chan struct{})
	gpu.AfterWork(func() { close(called) })
	within.Seconds(t, "a function behind those that block", func() error { <-called; return nil })
	close(gate)
	within.Seconds(t, "those that blocked", func() error { all.Wait(); return nil })
}

// A context that cannot be synchronised now, because a stream of it is being captured or for no
// known reason, is synchronised later: frees that wait for its work stay pending.
func TestFreesWaitWhileTheContextCannotBeSynchronised(t *testing.T) {
	const size, failures = 1 << 16, 10
	for _, code := range []int{900, 901, 906, 999} { // capture unsupported, invalidated, implicit; unknown
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
				mem := k.allocated(t, size)
				other := k.stream(t)
				stranger := k.m.Stranger(t, k.Own())
				open := stranger.Hold(t)
				require.NoError(t, stranger.Memset(mem.Ptr(), 0xdd, size))
				k.m.Sim.FailTimes("cuCtxSynchronize", 1, failures, code)
				t.Cleanup(func() { k.m.Sim.Fail("", 0, 0) })
				ended := make(chan error, 1)
				k.AfterWork(func() { ended <- mem.FreeAfter(nil) })

				// Time to fail ten times. A context that is not asked meanwhile fails afterwards.
				for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline) && len(ended) == 0; {
					time.Sleep(time.Millisecond)
				}
				require.Empty(t, ended, "it ended while its work is pending")
				require.GreaterOrEqual(t, k.usage().Live, int64(size))
				var fresh []device.Memory
				for range 8 {
					m, err := k.Allocate(seconds(t, 5), size, other)
					require.NoError(t, err)
					assert.NotEqual(t, mem.Ptr(), m.Ptr(), "given out while its work is pending")
					require.NoError(t, k.Memset(m.Ptr(), 1, size, other))
					fresh = append(fresh, m)
				}
				open()
				within.Limit(t, 15*time.Second, "the end of what waited", func() error { return <-ended })
				for _, m := range fresh {
					require.NoError(t, m.Free(other))
				}
				require.NoError(t, k.Flush(seconds(t, 15)))
				assert.Zero(t, k.ReadStats().Lost)
			})
		})
	}
}

// Memory that is freed on a stream is not given out again until the work on the stream is done.
func TestGPUFreeWaitsForItsStream(t *testing.T) {
	const size = 1 << 16
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		mem := k.allocated(t, size)
		s, other := k.stream(t), k.stream(t)
		open := k.m.Hold(t, s)
		require.NoError(t, k.Memset(mem.Ptr(), 0xdd, size, s))
		require.NoError(t, mem.Free(s))
		var fresh []device.Memory
		for range 8 {
			m, err := k.Allocate(seconds(t, 5), size, other)
			require.NoError(t, err)
			assert.NotEqual(t, mem.Ptr(), m.Ptr(), "given out while its work is pending")
			require.NoError(t, k.Memset(m.Ptr(), 1, size, other))
			fresh = append(fresh, m)
		}
		open()
		for _, m := range fresh {
			require.NoError(t, m.Free(other))
		}
		require.NoError(t, s.Synchronize(background))
		require.NoError(t, k.Flush(seconds(t, 15)))
		assert.Zero(t, k.usage().Live)
	})
}

// Flush and Trim wait, too, for a context that cannot be synchronised now.
func TestFlushWaitsForAContextThatCannotBeSynchronised(t *testing.T) {
	const size = 1 << 16
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		for name, flush := range map[string]func() error{
			"Flush": func() error { return k.Flush(seconds(t, 15)) },
			"Trim":  func() error { return k.Trim(seconds(t, 15)) },
		} {
			mem := k.allocated(t, size)
			stranger := k.m.Stranger(t, k.Own())
			require.NoError(t, stranger.Memset(mem.Ptr(), 0xdd, size))
			k.m.Sim.FailTimes("cuCtxSynchronize", 1, 10, 900)
			k.AfterWork(func() { assert.NoError(t, mem.FreeAfter(nil)) })
			within.Limit(t, 20*time.Second, name, flush)
			k.m.Sim.Fail("", 0, 0)
			require.NoError(t, k.Flush(seconds(t, 15)))
			assert.Zero(t, k.usage().Live, name)
			assert.Zero(t, k.ReadStats().Lost, name)
		}
	})
}

// A context that is gone runs no work: pending frees end, those that the driver refuses are
// counted, and the error of Flush has the cause.
func TestEndOfTheContextEndsWhatWaits(t *testing.T) {
	const size = 1 << 16
	sim := cudasim.Load(t, cudasim.Options{})
	sim.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority", "cuMemHostAlloc",
		"cuMemAllocManaged", "cuEventCreate", "cuMemAllocFromPoolAsync")
	gpu, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
	require.NoError(t, err)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	other, err := gpu.NewStream()
	require.NoError(t, err)
	victim, err := gpu.Allocate(background, size, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	open, err := hold(s)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(victim.Ptr(), 1, size, s))
	require.NoError(t, victim.Free(other), "a mistake of the program, which ends the context")
	require.NoError(t, other.Synchronize(background))

	ended := make(chan error, 2)
	for _, d := range []*cudaalloc.Device{gpu.Pinned(), gpu.Managed()} {
		mem, err := d.Allocate(background, size, nil)
		require.NoError(t, err)
		gpu.AfterWork(func() { ended <- mem.FreeAfter(nil) })
	}
	flushed := make(chan error, 1)
	ctx := seconds(t, 10)
	go func() { flushed <- gpu.Flush(ctx) }()
	time.Sleep(10 * time.Millisecond)
	open()
	for range 2 {
		within.Seconds(t, "the end of what waited", func() error { <-ended; return nil })
	}
	within.Seconds(t, "Flush", func() error { err = <-flushed; return nil })
	require.ErrorIs(t, s.Synchronize(background), cudaalloc.IllegalAddress, "the context is gone")
	assert.ErrorIs(t, err, cudaalloc.IllegalAddress)
	within.Seconds(t, "Trim", func() error { _ = gpu.Trim(seconds(t, 10)); return nil })
	within.Eventually(t, "nothing waits", func() bool { return gpu.ReadStats().Waiting == 0 })
	if live := sim.Report().Live; live.HostBytes > 0 || live.ManagedBytes > 0 {
		assert.Positive(t, gpu.ReadStats().Lost, "the driver refused to free it")
	}
	sim.ForgetViolations() // the mistake
}

// A stream that is stuck holds back memory that unknown work may use on it, and no memory that is
// known to be used elsewhere.
func TestGPUStuckStrangerHoldsUpNoFrees(t *testing.T) {
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		s := k.stream(t)
		stranger := k.m.Stranger(t, k.Own())
		open := stranger.Hold(t)
		waiting := make(chan struct{})
		k.AfterWork(func() { close(waiting) })
		for range 20 {
			within.Seconds(t, "a round", func() error { return freed(background, k.Device, mib, s) })
		}
		e, err := k.NewEvent()
		require.NoError(t, err)
		mem, err := k.Allocate(background, mib, s)
		require.NoError(t, err)
		require.NoError(t, s.Record(e))
		require.NoError(t, mem.FreeAfter(e))
		require.NoError(t, e.Close())
		within.Seconds(t, "the work", func() error { return s.Synchronize(background) })
		within.Eventually(t, "what was freed has ended", func() bool { return k.usage().Live == 0 })
		assert.LessOrEqual(t, k.usage().Peak, int64(64*mib))
		select {
		case <-waiting:
			t.Error("a function ran before the stranger's work was done")
		default:
		}
		open()
		within.Seconds(t, "the function", func() error { <-waiting; return nil })
	})
}

// A function may need memory that other functions free.
func TestFunctionMayAllocateWhatOthersFree(t *testing.T) {
	eachKind(t, cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}, func(t *testing.T, k *kind) {
		stranger := k.m.Stranger(t, k.Own())
		s := k.stream(t)
		mem := k.allocated(t, 40*mib)
		open := stranger.Hold(t)
		results := make(chan error, 2)
		ctx := seconds(t, 10)
		allocate := func() {
			err := freed(ctx, k.Device, 40*mib, s)
			if err == nil {
				err = s.Synchronize(background)
			}
			results <- err
		}
		k.AfterWork(allocate)
		k.AfterWork(func() { assert.NoError(t, mem.FreeAfter(nil)) })
		k.AfterWork(allocate)
		open()
		for range 2 {
			within.Limit(t, 12*time.Second, "a function that allocates", func() error { return <-results })
		}
	})
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
