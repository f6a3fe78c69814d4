package gpu_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// While synchronisation is held, a capture stays valid even if the driver does not show it: that of
// another library's stream that is not ordered with the default stream.
func TestHeldSynchronisationWaits(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	theirs, err := g.WrapStream(g.M.Stranger(t, g.Device).Handle)
	require.NoError(t, err)
	release, err := g.HoldSynchronization(background)
	require.NoError(t, err)
	end := g.M.Capture(t, theirs, cudatest.Global)
	g.M.Sim.ResetCounters()
	called := make(chan struct{})
	g.AfterWork(func() { close(called) })
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, g.Flush(ctx), context.DeadlineExceeded)
	assert.Zero(t, g.M.Sim.Calls("cuCtxSynchronize"))
	assert.NoError(t, end())
	release()
	within.Seconds(t, "the function", func() error { <-called; return nil })
}

// A synchronisation that is under way is waited for: it would invalidate the capture that the
// caller is about to begin.
func TestHoldWaitsForTheSynchronisationUnderWay(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	open := g.M.Stranger(t, g.Device).Hold(t)
	g.M.Sim.ResetCounters()
	called := make(chan struct{})
	g.AfterWork(func() { close(called) })
	within.Eventually(t, "it synchronises", func() bool { return g.M.Sim.Calls("cuCtxSynchronize") > 0 })
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	_, err := g.HoldSynchronization(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	open()
	release, err := g.HoldSynchronization(background)
	require.NoError(t, err)
	within.Seconds(t, "the function", func() error { <-called; return nil })
	release()
	require.NoError(t, g.Flush(background))
}

// However many blocks are freed while the GPU is busy, they cost a synchronisation
// or two.
func TestOneSynchronisationForMany(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{NoPools: true})
	s := g.Stream()
	var all []device.Memory
	for range 1000 {
		mem, err := g.Allocate(background, 1000, s)
		require.NoError(t, err)
		all = append(all, mem)
	}
	open := g.M.Hold(t, s)
	g.M.Sim.ResetCounters()
	var ran sync.WaitGroup
	for _, mem := range all {
		require.NoError(t, mem.Free(s), "does not wait")
		ran.Add(1)
		g.AfterWork(ran.Done)
	}
	assert.EqualValues(t, 2000, g.ReadStats().Waiting)
	assert.EqualValues(t, 1_000_000, g.ReadStats().Device.Live, "until it is freed")
	assert.Zero(t, g.M.Sim.Calls("cuMemFree"))
	open()
	ran.Wait()
	require.NoError(t, g.Flush(background))
	assert.Zero(t, g.M.Sim.Calls("cuMemFree"), "it is kept for later")
	assert.LessOrEqual(t, g.M.Sim.Calls("cuCtxSynchronize"), 3)
	assert.Zero(t, g.ReadStats().Waiting)
}
