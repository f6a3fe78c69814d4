package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

func TestEventsComeFromAFreeList(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	m.Sim.ResetCounters()
	for range 1000 {
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, gpu.Legacy().Record(e))
		require.NoError(t, e.Synchronize(background))
		require.NoError(t, e.Close())
	}
	assert.Equal(t, 1, m.Sim.Calls("cuEventCreate"))
	assert.Equal(t, 0, m.Sim.Calls("cuEventDestroy"))

	// One that is pending is no good to the next.
	s, err := gpu.NewStream()
	require.NoError(t, err)
	open, err := hold(s)
	require.NoError(t, err)
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	require.NoError(t, e.Close())
	assert.Equal(t, 1, m.Sim.Calls("cuEventDestroy"))
	open()
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, s.Close())
}
