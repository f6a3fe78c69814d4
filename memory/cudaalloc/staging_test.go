package cudaalloc_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// nothingStaged waits until all staging memory was given back, and checks that it was given back once.
func nothingStaged(t *testing.T, gpu *cudaalloc.Device) {
	t.Helper()
	require.NoError(t, gpu.Flush(background))
	bytes, streams := cudaalloc.Staged(gpu)
	assert.Zero(t, bytes)
	assert.Zero(t, streams)
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}

// Memory that was staged in, and that no event is behind, is given back behind all work.
func TestStagingWithoutAnEventWaits(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	const size = 1000
	s, own := memoryOn(t, gpu, size)
	m.Sim.Fail("cuEventRecord", 1, unknownError)
	src := make([]byte, size)
	defer runtime.KeepAlive(src)
	_, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: pointer(src), Size: size}}, s)
	require.ErrorContains(t, err, "cuEventRecord")
	next, err := gpu.AllocateHost(background, size)
	require.NoError(t, err)
	m.HostWrite(next.Ptr(), size)
	fill(at(next.Ptr(), size), 1)
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, next.Free(nil))
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// The copies before one that fails may still read the memory that they were staged in.
func TestStagingOfAnUploadThatFailsWaits(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	const size = 1000
	s, own := memoryOn(t, gpu, 3*size)
	src := make([]byte, size)
	defer runtime.KeepAlive(src)
	m.Sim.Fail("cuMemcpyAsync", 2, unknownError)
	_, err := gpu.Upload(background, []device.Range{ // no neighbours
		{Dst: own.Ptr(), Src: pointer(src), Size: size}, {Dst: own.Ptr() + 2*size, Src: pointer(src), Size: size},
	}, s)
	require.ErrorContains(t, err, "cuMemcpyAsync")
	next, err := gpu.AllocateHost(background, 2*size)
	require.NoError(t, err)
	m.HostWrite(next.Ptr(), 2*size)
	fill(at(next.Ptr(), 2*size), 1)
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, next.Free(nil))
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
	nothingStaged(t, gpu)
}

// An upload that finds no memory to stage in leaves none reserved.
func TestStagingThatFindsNoMemory(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	s, own := memoryOn(t, gpu, size)
	src := make([]byte, size)
	defer runtime.KeepAlive(src)
	m.Sim.Fail("cuMemHostAlloc", 1, unknownError)
	_, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: pointer(src), Size: size}}, s)
	require.ErrorContains(t, err, "cuMemHostAlloc")
	nothingStaged(t, gpu)
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}
