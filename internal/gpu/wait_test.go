package gpu_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// A wait that its caller gave up uses the stream no more: it can be destroyed at once.
func TestAbandonedWaitsLeaveNothing(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	s, err := m.GPUs[0].NewStream()
	require.NoError(t, err)
	open, err := hold(s)
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
