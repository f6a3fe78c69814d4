package gpu_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// nothingStaged waits until all staging memory was freed, and checks that it was freed once.
func nothingStaged(t *testing.T, gpu *cudaalloc.Device) {
	t.Helper()
	require.NoError(t, gpu.Flush(background))
	bytes, streams := core.Of(gpu).Staging.Staged()
	assert.Zero(t, bytes)
	assert.Zero(t, streams)
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}

// Memory that was staged in, and that no event is behind, is freed after all work.
func TestStagingWithoutAnEventWaits(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	const size = 1000
	s, own := memoryOn(t, gpu, size)
	m.Sim.Fail("cuEventRecord", 1, unknownError)
	src := make([]byte, size)
	defer runtime.KeepAlive(src)
	_, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(src), Size: size}}, s)
	require.ErrorContains(t, err, "cuEventRecord")
	next, err := gpu.AllocateHost(background, size)
	require.NoError(t, err)
	m.HostWrite(next.Ptr(), size)
	cudatest.Fill(cudatest.At(next.Ptr(), size), 1)
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
		{Dst: own.Ptr(), Src: cudatest.Pointer(src), Size: size}, {Dst: own.Ptr() + 2*size, Src: cudatest.Pointer(src), Size: size},
	}, s)
	require.ErrorContains(t, err, "cuMemcpyAsync")
	next, err := gpu.AllocateHost(background, 2*size)
	require.NoError(t, err)
	m.HostWrite(next.Ptr(), 2*size)
	cudatest.Fill(cudatest.At(next.Ptr(), 2*size), 1)
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
	_, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(src), Size: size}}, s)
	require.ErrorContains(t, err, "cuMemHostAlloc")
	nothingStaged(t, gpu)
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// Page-locked ranges that are neighbours in the source alone are copies of their own.
func TestNeighboursInTheSourceAlone(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 100
	s, own := memoryOn(t, gpu, 3*size)
	locked, err := gpu.Pinned().Allocate(background, 2*size, nil)
	require.NoError(t, err)
	cudatest.Fill(cudatest.At(locked.Ptr(), 2*size), 7)
	m.HostWrite(locked.Ptr(), 2*size)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, 3*size, s))
	e, err := gpu.Upload(background, []device.Range{
		{Dst: own.Ptr(), Src: locked.Ptr(), Size: size}, {Dst: own.Ptr() + 2*size, Src: locked.Ptr() + size, Size: size},
	}, s)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	back := goPinned(t, 3*size)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: cudatest.Pointer(back), Src: own.Ptr(), Size: 3 * size}}, s))
	require.NoError(t, s.Synchronize(background))
	for i, want := range []byte{7, 1, 7} {
		assert.Equal(t, want, back[i*size])
		assert.Equal(t, want, back[(i+1)*size-1])
	}
	require.NoError(t, locked.Free(s))
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// endsWhen is a context that ends when a byte has changed.
type endsWhen struct {
	context.Context
	changed *byte
}

func (c endsWhen) Err() error {
	if *c.changed != 0 {
		return context.Canceled
	}
	return nil
}

// A context ends an upload that the CPU copies in the middle, and one that has not begun at once.
func TestContextsEndCopiesOfTheCPU(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 12 * mib
	s, locked := memoryOn(t, gpu.Pinned(), size)
	to := cudatest.At(locked.Ptr(), size)
	clear(to)
	src := make([]byte, size)
	cudatest.Fill(src, 7)
	_, err := gpu.Pinned().Upload(endsWhen{background, &to[0]}, []device.Range{{Dst: locked.Ptr(), Src: cudatest.Pointer(src), Size: size}}, s)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, to[size-1], "it has gone on")

	own, err := gpu.Allocate(background, size, s)
	require.NoError(t, err)
	before := m.Sim.Calls("cuMemcpyAsync")
	_, err = gpu.Upload(endsWhen{background, &to[0]}, []device.Range{{Dst: own.Ptr(), Src: locked.Ptr(), Size: size}}, s)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, before, m.Sim.Calls("cuMemcpyAsync"))
	require.NoError(t, own.Free(s))
	require.NoError(t, locked.Free(s))
	require.NoError(t, s.Close())
}
