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
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A function that is called on the goroutine of OnComplete is guarded like any other.
func TestPanicOfAFunctionThatIsCalledAtOnce(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	e, err := g.NewEvent()
	require.NoError(t, err)
	before := g.ReadStats().CallbackPanics
	assert.NotPanics(t, func() { e.OnComplete(func() { panic("on purpose") }) })
	assert.Equal(t, before+1, g.ReadStats().CallbackPanics)
	require.NoError(t, e.Close())
}

// Flush also waits for blocks that a cache was given and does not keep.
func TestFlushLeavesNothingWaiting(t *testing.T) {
	for name, o := range map[string]cudasim.Options{"in order": {}, "lazy": {Lazy: true}, "delayed": {Delay: 100 * time.Microsecond}} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, o)
			g := m.On(t, m.GPUs[0].Pinned())
			s := g.Stream()
			limited(t, g, func(l *cudaalloc.Limits) { l.PinnedIdle = 0 })
			for range 50 {
				require.NoError(t, freed(background, g, 10_000, s))
				require.NoError(t, g.Flush(background))
				require.Zero(t, g.ReadStats().Waiting)
			}
		})
	}
}

// Many functions that block are run beside others, which need not wait long.
func TestManyBlockedFunctions(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const blocked = 200
	gate := make(chan struct{})
	var all sync.WaitGroup
	all.Add(blocked)
	for range blocked {
		g.AfterWork(func() { <-gate; all.Done() })
	}
	called := make(chan struct{})
	g.AfterWork(func() { close(called) })
	within.Seconds(t, "a function behind those that block", func() error { <-called; return nil })
	close(gate)
	within.Seconds(t, "those that blocked", func() error { all.Wait(); return nil })
}

// A context that cannot be synchronised now, because a stream of it is being captured or for no
// known reason, is synchronised later: frees that wait for its work stay pending, and Flush and Trim wait.
func TestFreesWaitWhileTheContextCannotBeSynchronised(t *testing.T) {
	const size, failures, captureUnsupported = 1 << 16, 10, 900
	for _, code := range []int{captureUnsupported, unknownError} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			eachKind(t, cudasim.Options{}, func(t *testing.T, k kind) {
				mem := k.Ready(size)
				stranger := k.M.Stranger(t, k.Own())
				open := stranger.Hold(t)
				require.NoError(t, stranger.Memset(mem.Ptr(), 0xdd, size))
				k.M.Sim.FailTimes("cuCtxSynchronize", 1, failures, code)
				t.Cleanup(func() { k.M.Sim.Fail("", 0, 0) })
				ended := make(chan error, 3)
				k.AfterWork(func() { ended <- mem.FreeAfter(nil) })
				go func() { ended <- k.Flush(background) }()
				go func() { ended <- k.Trim(background) }()

				within.Eventually(t, "it has failed", func() bool { return k.M.Sim.Calls("cuCtxSynchronize") > failures })
				require.Empty(t, ended, "it ended while its work is pending")
				use, _ := k.usage()
				require.GreaterOrEqual(t, use.Live, int64(size))
				k.others(t, size, mem)
				open()
				for range cap(ended) {
					within.Seconds(t, "the end of what waited", func() error { return <-ended })
				}
				require.NoError(t, k.Flush(seconds(t, 15)))
				assert.True(t, k.ended())
				assert.Zero(t, k.ReadStats().Lost)
			})
		})
	}
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
	open, err := core.Of(gpu).Ctx.Hold(s.Handle())
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
// known to be used elsewhere: beside it, a loop that allocates, uses and frees memory goes on.
func TestGPUStuckStrangerHoldsUpNoFrees(t *testing.T) {
	eachKind(t, cudasim.Options{NoPoison: true}, func(t *testing.T, k kind) {
		s := k.Stream()
		open := k.M.Stranger(t, k.Own()).Hold(t)
		waiting := make(chan struct{}, 1)
		k.AfterWork(func() { waiting <- struct{}{} })
		within.Limit(t, time.Minute, "the rounds", func() error {
			for range 500 {
				if err := freed(background, k.GPU, mib, s); err != nil {
					return err
				}
			}
			return s.Synchronize(background)
		})
		use, _ := k.usage()
		assert.Less(t, use.Peak, int64(300*mib))
		mem := k.Memory(mib, s)
		require.NoError(t, mem.FreeAfter(k.Event(s)))
		within.Seconds(t, "the work", func() error { return s.Synchronize(background) })
		within.Eventually(t, "what was freed has ended", k.ended)
		assert.Empty(t, waiting, "the stranger's work is not done")
		open()
		within.Seconds(t, "the function", func() error { <-waiting; return nil })
	})
}

// A function may need memory that other functions free.
func TestFunctionMayAllocateWhatOthersFree(t *testing.T) {
	eachKind(t, cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}, func(t *testing.T, k kind) {
		s, mem := k.Stream(), k.Ready(40*mib)
		open := k.M.Stranger(t, k.Own()).Hold(t)
		results := make(chan error, 2)
		ctx := seconds(t, 10)
		allocate := func() {
			err := freed(ctx, k.GPU, 40*mib, s)
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
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	s := g.Stream()
	own := g.Memory(1000, s)
	g.Fill(own.Ptr(), 1, 1000, s)
	g.M.Sim.Fail("cuMemFreeAsync", 1, unknownError)
	require.Error(t, own.Free(s))
	require.NoError(t, g.Flush(background))
}

// A pending free keeps its event: the event may be closed, and unrelated stuck work holds nothing
// up.
func TestFunctionsAndFreesWaitForTheirEvent(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const size = 1000
	s := g.Stream()
	stranger := g.M.Stranger(t, g.Device)
	// waits makes something wait for an event that is closed then, and that is complete after open.
	waits := func(name string, wait func(device.Event), over func() bool) {
		open := g.M.Hold(t, s)
		defer stranger.Hold(t)()
		e := g.Event(s)
		g.M.Sim.ResetCounters()
		wait(e)
		require.NoError(t, e.Close())
		assert.Zero(t, g.M.Sim.Calls("cuEventDestroy"), name)
		assert.False(t, over(), name)
		open()
		within.Eventually(t, name, over)
	}
	var called atomic.Bool
	waits("OnComplete", func(e device.Event) { e.OnComplete(func() { called.Store(true) }) }, called.Load)
	own := g.Memory(size, s)
	waits("FreeAfter", func(e device.Event) {
		g.Fill(own.Ptr(), 1, size, s)
		require.NoError(t, s.Record(e))
		require.NoError(t, own.FreeAfter(e))
	}, func() bool { return g.ReadStats().Device.Live == 0 })
}

// An event that the driver cannot query proves nothing: frees that wait for it wait for all work
// instead.
func TestFreesWaitWhereEventsCannotBeAsked(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const size = 1000
	s, open := g.Held()
	own := g.Memory(size, s)
	g.Fill(own.Ptr(), 1, size, s)
	e := g.Event(s)
	g.M.Sim.ResetCounters()
	g.M.Sim.FailTimes("cuEventQuery", 1, 1000, unknownError)
	defer g.M.Sim.Fail("", 0, 0)
	var called atomic.Bool
	e.OnComplete(func() { called.Store(true) })
	require.NoError(t, own.FreeAfter(e))
	within.Eventually(t, "the context is synchronised", func() bool { return g.M.Sim.Calls("cuCtxSynchronize") > 0 })
	assert.False(t, called.Load())
	assert.EqualValues(t, size, g.ReadStats().Device.Live)
	open()
	require.NoError(t, g.Flush(background))
	assert.True(t, called.Load())
	assert.Zero(t, g.ReadStats().Device.Live)
}

// So does a function that is given to an event that is closed.
func TestFunctionsOfClosedEventsWaitForAllWork(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	s, open := g.Held()
	g.Fill(g.Memory(1000, s).Ptr(), 1, 1000, s)
	e := g.Event(s)
	require.NoError(t, e.Close())
	var called atomic.Bool
	e.OnComplete(func() { called.Store(true) })
	within.Eventually(t, "the context is synchronised", func() bool { return g.M.Sim.Calls("cuCtxSynchronize") > 0 })
	assert.False(t, called.Load())
	open()
	within.Eventually(t, "the function is called", called.Load)
}
