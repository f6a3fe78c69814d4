package gpu_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A stream that is being asked whether it is captured is ended afterwards.
func TestEndOfAStreamWaitsForQuestionsAboutIt(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	for range 2 {
		s := g.Stream()
		asked := core.Of(g.Device).Streams.Ask()
		g.M.Sim.ResetCounters()
		require.NoError(t, s.Close())
		assert.Zero(t, g.M.Sim.Calls("cuStreamDestroy"))
		asked()
		assert.Equal(t, 1, g.M.Sim.Calls("cuStreamDestroy"))
	}
}

// A copy stream with pending work is not reused for the next copy.
func TestGPUCopyStreamThatWaitsIsNotGivenOut(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	first, err := g.CopyStream()
	require.NoError(t, err)
	open := g.M.Hold(t, first)
	require.NoError(t, first.Close())
	second, err := g.CopyStream()
	require.NoError(t, err)
	assert.NotEqual(t, first.Handle(), second.Handle())
	open()
	require.NoError(t, second.Close())
}

func TestGPUDefaultStreamsAndPriorities(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	const n = 1000
	mem := g.Memory(n, nil)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, s := range []*cudaalloc.Stream{g.Legacy(), g.PerThread()} {
		g.Fill(mem.Ptr(), byte(i+1), n, s)
		g.Holds(byte(i+1), mem.Ptr(), n, s)
		require.NoError(t, s.Close())
		assert.Error(t, s.Synchronize(background), "closed, for this value")
	}

	open := g.M.Hold(t, g.Legacy())
	assert.NoError(t, g.Stream().Synchronize(background), "own streams do not wait for the legacy stream")
	open()

	least, greatest, err := g.Priorities()
	require.NoError(t, err)
	assert.LessOrEqual(t, greatest, least)
	for _, p := range []int{least, greatest, -100, 100} {
		s, err := g.NewStreamWithPriority(p)
		require.NoError(t, err)
		require.NoError(t, s.Synchronize(background))
		require.NoError(t, s.Close())
	}
}
