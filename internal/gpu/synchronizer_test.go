package gpu_test

import (
	"context"
	"runtime"
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
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	theirs, err := gpu.WrapStream(m.Stranger(t, gpu).Handle)
	require.NoError(t, err)
	release, err := gpu.HoldSynchronization(background)
	require.NoError(t, err)
	end := m.Capture(t, theirs, cudatest.Global)
	m.Sim.ResetCounters()
	called := make(chan struct{})
	gpu.AfterWork(func() { close(called) })
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, gpu.Flush(ctx), context.DeadlineExceeded)
	assert.Zero(t, m.Sim.Calls("cuCtxSynchronize"))
	assert.NoError(t, end())
	release()
	within.Seconds(t, "the function", func() error { <-called; return nil })
}

// A synchronisation that is under way is waited for: it would invalidate the capture that the
// caller is about to begin.
func TestHoldWaitsForTheSynchronisationUnderWay(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	open := m.Stranger(t, gpu).Hold(t)
	m.Sim.ResetCounters()
	called := make(chan struct{})
	gpu.AfterWork(func() { close(called) })
	for m.Sim.Calls("cuCtxSynchronize") == 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	_, err := gpu.HoldSynchronization(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	open()
	release, err := gpu.HoldSynchronization(background)
	require.NoError(t, err)
	within.Seconds(t, "the function", func() error { <-called; return nil })
	release()
	require.NoError(t, gpu.Flush(background))
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
	open, err := hold(s)
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
