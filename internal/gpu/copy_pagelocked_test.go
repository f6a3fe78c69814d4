package gpu_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// The driver makes a copy between page-locked memory within the call: a context ends the wait for the work before it.
func TestCopiesBetweenPageLockedMemoryEndWithTheirContext(t *testing.T) {
	const n = 64
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	host := g.M.On(t, g.Pinned()).Ready(2 * n)
	list := cudatest.Range(host.Ptr(), host.Ptr()+n, n)
	held, open := g.Held()
	g.M.Sim.ResetCounters()
	var ended error
	within.Seconds(t, "a copy whose context ends", func() error {
		ended = briefly(func(ctx context.Context) error { return g.CopyContext(ctx, list, held) })
		return nil
	})
	assert.ErrorIs(t, ended, context.DeadlineExceeded)
	assert.Zero(t, g.M.Sim.Calls("cuMemcpyAsync"))
	open()
	require.NoError(t, g.CopyContext(background, list, held))
	assert.Equal(t, 1, g.M.Sim.Calls("cuMemcpyAsync"))
	require.NoError(t, held.Synchronize(background))
	require.NoError(t, g.Flush(background))
}

// A captured copy waits for nothing.
func TestCapturedCopiesBetweenPageLockedMemory(t *testing.T) {
	const n = 64
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	host := g.M.On(t, g.Pinned()).Ready(2 * n)
	s := g.Stream()
	end := g.M.Capture(t, s, cudatest.Global)
	require.NoError(t, g.CopyContext(background, cudatest.Range(host.Ptr(), host.Ptr()+n, n), s))
	require.NoError(t, end())
}
