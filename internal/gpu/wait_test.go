package gpu_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A wait that its caller gave up uses the stream or the event no more: its owner can destroy it at once.
func TestAbandonedWaitsLeaveNothing(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	sim := g.M.Sim
	s := g.Stream()
	producer := g.M.Stranger(t, g.Device)
	openOwn := g.M.Hold(t, s)
	open := producer.Hold(t)
	word, destroy := producer.Event(t)
	e, err := g.WrapEvent(word)
	require.NoError(t, err)
	for what, row := range map[string]struct {
		wait func(context.Context) error
		end  func() error
	}{
		"Stream": {s.Synchronize, s.Close},
		"Event":  {e.Synchronize, func() error { return errors.Join(e.Close(), destroy()) }},
	} {
		for range 5 {
			within.Context(t, what, row.wait)
			sim.ResetCounters()
			ctx, cancel := context.WithCancel(background)
			result := make(chan error, 1)
			go func() { result <- row.wait(ctx) }()
			within.Eventually(t, "it waits", func() bool { return sim.Calls("cu"+what+"Query") >= 2 })
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
		}
		sim.ResetCounters()
		require.NoError(t, row.end())
		assert.Equal(t, 1, sim.Calls("cu"+what+"Destroy"))
		time.Sleep(10 * time.Millisecond) // in which a wait that is left would ask again
		r := sim.Report()
		assert.Zero(t, r.Calls["cu"+what+"Query"]+r.Calls["cu"+what+"Synchronize"]+int(r.FailedCalls), what)
	}
	openOwn()
	open()
	require.NoError(t, producer.Synchronize())
}

// A wait that a context may end is made on another thread, and still is for the
// per-thread stream of the caller's.
func TestGPUCancellableWaitForThePerThreadStream(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	s := g.PerThread()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open := g.M.Hold(t, s)
	ctx, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, s.Synchronize(ctx), context.DeadlineExceeded)
	open()
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	assert.NoError(t, s.Synchronize(ctx))
	assert.True(t, g.Done(s))
}

// A wait for completed work is one query, not a waiting thread.
func TestGPUNoWaitForWhatIsDone(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	e, err := g.NewEvent()
	require.NoError(t, err)
	require.NoError(t, e.Synchronize(t.Context()))
	if g.M.Sim != nil {
		assert.Equal(t, 1, g.M.Sim.Calls("cuEventQuery"))
		assert.Zero(t, g.M.Sim.Calls("cuEventSynchronize"))
	}
	require.NoError(t, e.Close())
}

// A wait asks several times before it sleeps, in the driver or between two queries. Then it blocks, where no
// context ends it, and has the error of that call.
func TestWaitsAskBeforeTheySleep(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	s := g.Stream()
	for _, fails := range []bool{false, true} {
		open := g.M.Hold(t, s)
		e := g.Event(s)
		g.M.Sim.ResetCounters()
		if fails {
			g.M.Sim.Fail("cuEventSynchronize", 1, unknownError)
		}
		result := make(chan error, 1)
		go func() { result <- e.Synchronize(background) }()
		within.Eventually(t, "it blocks", func() bool { return g.M.Sim.Calls("cuEventSynchronize") == 1 })
		assert.GreaterOrEqual(t, g.M.Sim.Calls("cuEventQuery"), 10)
		if fails {
			assert.ErrorContains(t, <-result, "cuEventSynchronize")
			open()
		} else {
			assert.Empty(t, result)
			open()
			assert.NoError(t, <-result)
		}
		require.NoError(t, s.Synchronize(background))
		require.NoError(t, e.Close())
	}
}
