package cudaalloc_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// background is the context of calls that no test ends.
var background = context.Background()

func TestErrorsNameTheCall(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{Memory: 1 << 30, NoPools: true})
	_, err := g.Allocate(background, 1<<31, nil)
	assert.EqualError(t, err, "cuda: cuMemAlloc(2147483648) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY: out of memory")
	assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
	assert.NotErrorIs(t, err, cudaalloc.InvalidValue)
	assert.NotErrorIs(t, err, device.ErrNotSupported)
	var failed *cudaalloc.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "cuMemAlloc", failed.Call)
	assert.Equal(t, []any{int64(1 << 31)}, failed.Args)
	assert.Equal(t, "cuda:0", failed.Device)

	s, err := g.WrapStream(0xdead0)
	require.NoError(t, err, "a borrowed handle is believed until it is used")
	err = s.Record(g.Event(g.Legacy()))
	assert.ErrorIs(t, err, cudaalloc.InvalidHandle)
	assert.ErrorContains(t, err, "0xdead0) on cuda:0: CUDA_ERROR_INVALID_HANDLE")
	_, err = g.WrapEvent(0)
	assert.Error(t, err)
}

// Errors name the closed object and its handle.
func TestUseAfterCloseNamesTheHandle(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	s, e, mem := g.Stream(), g.Event(g.Legacy()), g.Memory(100, nil)
	borrowed, err := g.WrapStream(0)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, s.Close())
		require.NoError(t, e.Close())
		require.NoError(t, borrowed.Close())
	}
	const closed = `0x[0-9a-f]+ of cuda:0: used after it was closed$`
	_, query := e.Query()
	_, allocate := g.Allocate(background, 10, s)
	for _, row := range []struct {
		want string
		err  error
	}{
		{`^cuda: stream `, s.Synchronize(background)},
		{`^cuda: stream `, g.Memset(0, 0, 1, s)},
		{`^cuda: stream `, g.Copy(nil, s)},
		{`^cuda: stream `, g.Prefetch(mem.Ptr(), 1, s)},
		{`^cuda: stream `, allocate},
		{`^cuda: stream `, borrowed.Synchronize(background)},
		{`^cuda: event `, e.Synchronize(background)},
		{`^cuda: event `, query},
		{`^cuda: event `, g.Legacy().Record(e)},
		{`^cuda: event `, g.Legacy().WaitEvent(e)},
		{`^cuda: free memory of cuda:0 after an event: cuda: event `, mem.FreeAfter(e)},
	} {
		assert.Regexp(t, row.want+closed, row.err)
		assert.ErrorIs(t, row.err, cudaalloc.ErrClosed)
	}
	assert.Regexp(t, `^cuda: 100 bytes of cuda:0 memory at 0x[0-9a-f]+: freed twice$`, mem.Free(nil))
}

func TestLimitsAreThoseThatWereSet(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu := m.GPUs[0]
	first := gpu.Limits()
	assert.Equal(t, cudaalloc.DefaultLimits(), first)
	want := cudaalloc.Limits{PinnedIdle: 1, ManagedIdle: 2, DeviceIdle: 3, Waiting: 4, IdleAfter: 5 * time.Second}
	require.NoError(t, gpu.SetLimits(want))
	assert.Equal(t, want, gpu.Limits())
	assert.Equal(t, want, gpu.Pinned().Limits(), "the kinds of memory share them")
	assert.Equal(t, first, m.GPUs[1].Limits(), "GPUs do not")
	for name, wrong := range map[string]cudaalloc.Limits{
		"PinnedIdle": {PinnedIdle: -1, Waiting: -1}, "ManagedIdle": {ManagedIdle: -1}, "DeviceIdle": {DeviceIdle: -1},
		"Waiting": {Waiting: -1}, "IdleAfter": {IdleAfter: -1},
	} {
		err := gpu.SetLimits(wrong)
		assert.EqualError(t, err, "cuda: limits of cuda:0: Limits."+name+" = -1, want 0 or more: invalid")
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.Equal(t, want, gpu.Limits())
	}
}

func TestGPUPeers(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, a := range m.GPUs {
			assert.NoError(t, a.EnablePeerAccess(a), "a GPU has access to itself")
			for _, b := range m.GPUs {
				if a == b {
					continue
				}
				can, err := a.CanAccessPeer(b)
				require.NoError(t, err)
				err = a.EnablePeerAccess(b)
				if !can {
					assert.ErrorIs(t, err, device.ErrNotSupported)
					continue
				}
				require.NoError(t, err)
				require.NoError(t, a.EnablePeerAccess(b), "twice is allowed")
				m.On(t, a).Fill(m.On(t, b).Ready(100).Ptr(), 1, 100, nil) // work here on memory there
				require.NoError(t, a.Legacy().Synchronize(background))
			}
		}
	})
	a, b := cudatest.Simulated(t, cudasim.Options{}), cudatest.Simulated(t, cudasim.Options{})
	assert.ErrorIs(t, a.GPUs[0].EnablePeerAccess(b.GPUs[0]), device.ErrNotSupported, "of another driver")
}

// No call leaves a context current on its thread, on one that had none and on one
// that had another.
func TestThreadsAreLeftUnchanged(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		gpu := m.GPUs[0]
		assert.Zero(t, cudaalloc.Current(gpu))
		s, err := gpu.NewStream()
		assert.NoError(t, err)
		mem, err := gpu.Allocate(background, 100, s)
		assert.NoError(t, err)
		assert.NoError(t, gpu.Memset(mem.Ptr(), 1, 100, s))
		_, err = gpu.Allocate(background, 1<<50, s)
		assert.Error(t, err)
		assert.NoError(t, mem.Free(s))
		assert.NoError(t, s.Synchronize(background))
		assert.NoError(t, s.Close())
		assert.Zero(t, cudaalloc.Current(gpu))

		m.Sim.Fail("cuCtxSetCurrent", 2, unknownError) // the one that restores
		_, _, err = gpu.MemoryInfo()
		assert.NoError(t, err, "what was asked for has been done")
		_, met := m.Sim.Failed()
		assert.True(t, met)
		assert.Zero(t, cudaalloc.Current(gpu), "restoring is tried again")
	})
	wg.Wait()
}
