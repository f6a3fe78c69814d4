package gpu_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// nothingStaged waits until all staging memory was freed, and checks that it was freed once.
func nothingStaged(t *testing.T, g cudatest.GPU) {
	t.Helper()
	require.NoError(t, g.Flush(background))
	bytes, streams := core.Of(g.Own()).Staging.Staged()
	assert.Zero(t, bytes)
	assert.Zero(t, streams)
	assert.Zero(t, g.ReadStats().Pinned.Live)
}

// The copies before a call that fails may still read the memory that they were staged in, which is freed after
// all work then. An upload that finds no memory to stage in leaves none reserved.
func TestStagingOfAnUploadThatFails(t *testing.T) {
	const size = 1000
	for function, call := range map[string]int{"cuEventRecord": 1, "cuMemcpyAsync": 2, "cuMemHostAlloc": 1} {
		t.Run(function, func(t *testing.T) {
			g := cudatest.SimulatedGPU(t, cudasim.Options{Lazy: true})
			s := g.Stream()
			own := g.Memory(3*size, s)
			src := make([]byte, size)
			defer runtime.KeepAlive(src)
			g.M.Sim.Fail(function, call, unknownError)
			_, err := g.Upload(background, append(cudatest.Range(own.Ptr(), cudatest.Pointer(src), size),
				cudatest.Range(own.Ptr()+2*size, cudatest.Pointer(src), size)...), s) // no neighbours
			require.ErrorContains(t, err, function)
			next, err := g.AllocateHost(background, 2*size)
			require.NoError(t, err)
			g.M.HostWrite(next.Ptr(), 2*size)
			cudatest.Fill(cudatest.At(next.Ptr(), 2*size), 1)
			require.NoError(t, s.Synchronize(background))
			require.NoError(t, next.Free(nil))
			nothingStaged(t, g)
		})
	}
}

// Page-locked ranges that are neighbours in the source alone are copies of their own.
func TestNeighboursInTheSourceAlone(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const size = 100
	s := g.Stream()
	own, locked := g.Memory(3*size, s), g.M.On(t, g.Pinned()).Ready(2*size)
	cudatest.Fill(cudatest.At(locked.Ptr(), 2*size), 7)
	g.M.HostWrite(locked.Ptr(), 2*size)
	g.Fill(own.Ptr(), 1, 3*size, s)
	e, err := g.Upload(background, append(cudatest.Range(own.Ptr(), locked.Ptr(), size),
		cudatest.Range(own.Ptr()+2*size, locked.Ptr()+size, size)...), s)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	for i, want := range []byte{7, 1, 7} {
		g.Holds(want, own.Ptr()+device.Ptr(i*size), size, s)
	}
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
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const size = 12 * mib
	s, locked := g.Stream(), g.M.On(t, g.Pinned()).Ready(size)
	own := g.Memory(size, s)
	to := cudatest.At(locked.Ptr(), size)
	clear(to)
	src := make([]byte, size)
	cudatest.Fill(src, 7)
	ctx := endsWhen{background, &to[0]}
	_, err := g.Pinned().Upload(ctx, cudatest.Range(locked.Ptr(), cudatest.Pointer(src), size), s)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, to[size-1], "it has gone on")

	before := g.M.Sim.Calls("cuMemcpyAsync")
	_, err = g.Upload(ctx, cudatest.Range(own.Ptr(), locked.Ptr(), size), s)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, before, g.M.Sim.Calls("cuMemcpyAsync"))
}

// endsAfter is a context that ends when it was asked so often.
type endsAfter struct {
	context.Context
	left atomic.Int32
}

func (c *endsAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A context ends an upload while memory is staged, between two pieces of 256 KiB.
func TestContextEndsStaging(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const size, pieces = 12 * mib, 48
	s, src := g.Stream(), make([]byte, size)
	own := g.Memory(size, s)
	for _, cores := range []int{1, 4} {
		before := runtime.GOMAXPROCS(cores)
		ctx := &endsAfter{Context: background}
		ctx.left.Store(pieces - 8) // it is asked for each piece, and some times before
		_, err := upload(ctx, g.Device, own.Ptr(), src, s)
		runtime.GOMAXPROCS(before)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "upload on")
		assert.Negative(t, ctx.left.Load())
		nothingStaged(t, g)
	}
}
