package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

func TestEventsComeFromAFreeList(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	g.M.Sim.ResetCounters()
	for range 1000 {
		e, err := g.NewEvent()
		require.NoError(t, err)
		require.NoError(t, g.Legacy().Record(e))
		require.NoError(t, e.Synchronize(background))
		require.NoError(t, e.Close())
	}
	assert.Equal(t, 1, g.M.Sim.Calls("cuEventCreate"))
	assert.Equal(t, 0, g.M.Sim.Calls("cuEventDestroy"))

	s, _ := g.Held()
	require.NoError(t, g.Event(s).Close())
	assert.Equal(t, 1, g.M.Sim.Calls("cuEventDestroy"), "one that is pending is no good to the next user")
}
