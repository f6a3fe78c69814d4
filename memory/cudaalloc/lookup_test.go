package cudaalloc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// device.Lookup knows the memory of every GPU of a driver of which one is open.
func TestGPULookupOfTheProcess(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{Devices: 2})
	for _, d := range m.Devices(t) {
		mem, err := d.Allocate(background, 100, nil)
		require.NoError(t, err)
		found, err := device.Lookup(mem.Ptr() + 10)
		require.NoError(t, err)
		assert.Equal(t, d.ID(), found.ID)
		assert.True(t, found.Contains(mem.Ptr(), 100))
		require.NoError(t, mem.Free(nil))
	}
	plain := make([]byte, 100)
	found, err := device.Lookup(cudatest.Pointer(plain))
	require.NoError(t, err)
	assert.Equal(t, device.CPUDevice().ID(), found.ID)
}

// A driver is asked only when a GPU of it is open.
func TestLookupOpensNothing(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{})
	driver := cudaalloc.WithDriver(sim.Path())
	_, err := cudaalloc.Devices(driver)
	require.NoError(t, err)
	plain := make([]byte, 100)
	asked := func() int {
		sim.ResetCounters()
		found, err := device.Lookup(cudatest.Pointer(plain))
		require.NoError(t, err)
		assert.Equal(t, device.CPUDevice().ID(), found.ID)
		return sim.Calls("")
	}
	assert.Zero(t, asked())
	gpu, err := cudaalloc.Open(0, driver)
	require.NoError(t, err)
	assert.NotZero(t, asked())
	require.NoError(t, cudaalloc.Close(gpu))
	assert.Zero(t, asked())
}
