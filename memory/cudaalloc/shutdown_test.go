package cudaalloc_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A driver that was shut down under an open GPU, as drivers do when the process ends,
// is an error of each call, and nothing else.
func TestADriverThatWasShutDown(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{})
	sim.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority", "cuMemAllocFromPoolAsync",
		"cuMemHostAlloc", "cuEventCreate")
	gpu, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
	require.NoError(t, err)
	memory, err := gpu.Allocate(background, 1000, nil)
	require.NoError(t, err)
	pinned, err := gpu.Pinned().Allocate(background, 8<<20, nil)
	require.NoError(t, err)
	event, err := gpu.NewEvent()
	require.NoError(t, err)
	called := make(chan struct{})
	sim.Pause()
	require.NoError(t, gpu.Memset(memory.Ptr(), 1, 1000, nil))
	gpu.AfterWork(func() { close(called) })
	require.NoError(t, pinned.Free(nil)) // to its cache, behind an event

	sim.ShutDown()
	<-called
	assert.ErrorIs(t, memory.Free(nil), cuda.Deinitialized)
	for gpu.ReadStats().Waiting > 0 {
		_ = gpu.Flush(background) // an error each time
	}
	assert.EqualValues(t, 2, gpu.ReadStats().Lost)
	_ = event.Close()
	_, err = gpu.Allocate(background, 1000, nil)
	assert.ErrorIs(t, err, cuda.Deinitialized)
	assert.ErrorIs(t, gpu.Legacy().Synchronize(background), cuda.Deinitialized)

	// It knows no memory any more, and other devices can still be asked.
	var local int
	for range 2 {
		found, err := device.Lookup(device.Ptr(uintptr(unsafe.Pointer(&local))))
		require.NoError(t, err)
		assert.Equal(t, device.CPU, found.ID.Type)
	}
}
