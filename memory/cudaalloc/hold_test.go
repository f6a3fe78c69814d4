package cudaalloc_test

import (
	"context"
	"runtime"
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

// Captures that this package cannot see, and those that it sees.

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

// Memory that is freed on the default stream is not given out before its work is done, while
// a capture keeps an event from being recorded there.
func TestGPUFreeOnTheDefaultStreamWaitsForACapture(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	const size = 1000
	mem, err := gpu.Pinned().Allocate(background, size, nil)
	require.NoError(t, err)
	theirs := m.BlockingStream(t, gpu)
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, size, nil))
	end := m.Capture(t, theirs, cudatest.Global)
	require.NoError(t, mem.Free(nil))
	assert.EqualValues(t, size, gpu.ReadStats().Pinned.Live)
	next, err := gpu.Pinned().Allocate(background, size, nil)
	require.NoError(t, err)
	assert.NotEqual(t, mem.Ptr(), next.Ptr())
	require.NoError(t, next.FreeAfter(nil))
	require.NoError(t, end())
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}

// Memory that is freed after an event of another device is freed after all work of its own.
func TestGPUFreeAfterAForeignEventWaits(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	own, err := gpu.Allocate(background, size, nil)
	require.NoError(t, err)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	open := m.Hold(t, s)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, size, s))
	foreign, err := device.CPUDevice().NewEvent()
	require.NoError(t, err)
	require.Error(t, own.FreeAfter(foreign))
	assert.EqualValues(t, size, gpu.ReadStats().Device.Live)
	open()
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Device.Live)
	require.NoError(t, s.Close())
}

// A stream that is being asked whether it is captured is ended afterwards.
func TestEndOfAStreamWaitsForQuestionsAboutIt(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for range 2 {
		s, err := gpu.NewStream()
		require.NoError(t, err)
		asked := cudaalloc.Ask(gpu)
		m.Sim.ResetCounters()
		require.NoError(t, s.Close())
		assert.Zero(t, m.Sim.Calls("cuStreamDestroy"))
		asked()
		assert.Equal(t, 1, m.Sim.Calls("cuStreamDestroy"))
	}
}

// Memory that is freed on a stream that is being captured, whose events never complete, is freed after all
// work. The capture is invalid then, because the event was asked for.
func TestGPUFreeOnACapturedStream(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := cudatest.NewStream(t, gpu)
	mem, err := gpu.Pinned().Allocate(background, 1000, nil)
	require.NoError(t, err)
	end := m.Capture(t, s, cudatest.Global)
	require.NoError(t, mem.Free(s))
	_ = end()
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}
