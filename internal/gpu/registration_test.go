package gpu_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/pages"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

const mappedSize = 8192

// mapped is host memory that is mapped until the test ends, unless its unmap is called.
func mapped(t *testing.T, access pages.Access) (p device.Ptr, unmap func()) {
	t.Helper()
	b, end, err := pages.Map(mappedSize, access)
	require.NoError(t, err)
	done := make(chan struct{}, 1)
	unmap = func() {
		select {
		case done <- struct{}{}:
			assert.NoError(t, end())
		default:
		}
	}
	t.Cleanup(unmap)
	return cudatest.Pointer(b), unmap
}

// writable is mapped memory that may be read and written.
func writable(t *testing.T) (p device.Ptr, unmap func()) {
	t.Helper()
	return mapped(t, pages.ReadWrite)
}

// Registered memory is page-locked until the work that reads it is done, and its owner is told when it
// may unmap it. A Flush waits until it has been told.
func TestGPURegisteredMemoryEndsAfterItsWork(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		g := m.On(t, m.GPUs[0])
		for name, free := range map[string]func(mem device.Memory, s device.Stream) error{
			"on a stream":    device.Memory.Free,
			"after an event": func(mem device.Memory, s device.Stream) error { return mem.FreeAfter(g.Event(s)) },
		} {
			p, unmap := writable(t)
			cudatest.Fill(cudatest.At(p, mappedSize), 7)
			ended := make(chan struct{}, 1)
			mem, err := g.RegisterMemory(p, mappedSize, false, func() {
				unmap()
				time.Sleep(10 * time.Millisecond) // which a Flush that does not wait would not see
				ended <- struct{}{}
			})
			require.NoError(t, err)
			assert.True(t, g.PageLocked(p, mappedSize))
			in, err := g.Lookup(p)
			require.NoError(t, err)
			assert.Equal(t, device.CUDAHost, in.ID.Type)
			assert.EqualValues(t, mappedSize, g.ReadStats().Registered.Live)

			s := g.Stream()
			own := g.Memory(mappedSize, s)
			open := m.Hold(t, s)
			g.Transfer(own.Ptr(), p, mappedSize, s)
			require.NoError(t, free(mem, s), name)
			assert.Zero(t, g.ReadStats().WaitingBytes, "nobody gets memory back")
			assert.ErrorContains(t, mem.FreeAfter(nil), "freed twice")
			assert.Empty(t, ended, "the copy has not begun")
			open()
			require.NoError(t, g.Flush(background))
			assert.Len(t, ended, 1, "Flush has waited for the function")
			assert.False(t, g.PageLocked(p, mappedSize))
			assert.Zero(t, g.ReadStats().Registered.Live)
			g.Holds(7, own.Ptr(), mappedSize, s)
		}
	})
}

// A capture of another library is not invalidated: the memory stays registered until it has ended.
func TestGPURegisteredMemoryAndCaptures(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	p, unmap := writable(t)
	end := g.M.Capture(t, g.Stream(), cudatest.Global)
	mem, err := g.RegisterMemory(p, mappedSize, false, unmap)
	require.NoError(t, err)
	require.NoError(t, mem.FreeAfter(nil))
	assert.NoError(t, end(), "the capture")
	require.NoError(t, g.Flush(background))
	assert.Zero(t, g.ReadStats().Registered.Live)
}

// Memory that the driver does not unregister must stay mapped: its owner is not told that it has ended.
func TestRegisteredMemoryIsLost(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	p, _ := writable(t)
	for fails, want := range map[int]int{1: 1, 2: 1, 3: 0} {
		called := 0
		mem, err := g.RegisterMemory(p, mappedSize, false, func() { called++ })
		require.NoError(t, err)
		g.M.Sim.ResetCounters()
		g.M.Sim.FailTimes("cuMemHostUnregister", 1, fails, unknownError)
		require.NoError(t, mem.FreeAfter(nil))
		err = g.Flush(background)
		g.M.Sim.Fail("", 0, 0)
		assert.Equal(t, want, called, "%d failures", fails)
		assert.EqualValues(t, 1-want, g.ReadStats().Lost)
		if want == 0 {
			if err != nil { // of a free that Flush made; one that the poller made before is counted alone
				assert.ErrorContains(t, err, "cuMemHostUnregister")
			}
			core.Of(g.Device).Deferred.ForgetLost()
			heapOf(g).ForgetLost()
			require.NoError(t, core.Of(g.Device).Unregister(background, p))
		}
	}
}

// Memory that is mapped read-only is registered as such, or refused where the GPU cannot.
func TestReadOnlyMemoryIsRegistered(t *testing.T) {
	for _, can := range []bool{true, false} {
		g := cudatest.SimulatedGPU(t, cudasim.Options{NoReadOnlyRegister: !can})
		got, err := g.RegistersReadOnly()
		require.NoError(t, err)
		assert.Equal(t, can, got)
		p, _ := mapped(t, pages.Read)
		mem, err := g.RegisterMemory(p, mappedSize, true, nil)
		if can {
			require.NoError(t, err)
			require.NoError(t, mem.FreeAfter(nil))
			require.NoError(t, g.Flush(background))
		} else {
			assert.ErrorIs(t, err, device.ErrNotSupported)
		}
		_, err = g.RegisterMemory(p, mappedSize, false, nil)
		assert.ErrorIs(t, err, cudaalloc.InvalidValue, "the GPU could write it")
		_, err = g.RegisterMemory(p, 0, true, nil)
		assert.ErrorContains(t, err, "register 0 bytes")
		assert.Zero(t, g.ReadStats().Registered.Live)
	}
}

// Unregister waits for the work of every GPU: memory that one has page-locked is page-locked for all.
func TestGPUUnregisteringWaits(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.GPUs {
			p, unmap := writable(t)
			by := m.On(t, dev)
			s := by.Stream()
			target := by.Memory(mappedSize, s)
			require.NoError(t, core.Of(m.GPUs[0]).Heap.Register(p, mappedSize, false))
			by.Transfer(target.Ptr(), p, mappedSize, s)
			require.NoError(t, core.Of(m.GPUs[0]).Unregister(background, p))
			unmap()
			require.NoError(t, s.Synchronize(background))
		}
	})
}

// Waits for the work of the whole GPU end with their context, lose nothing, and can be repeated.
func TestGPUContextsEndWaitsForTheGPU(t *testing.T) {
	waiting := func(g cudatest.GPU, _ device.Ptr) error { g.AfterWork(func() {}); return nil }
	for name, row := range map[string]struct {
		prepare func(g cudatest.GPU, p device.Ptr) error
		wait    func(ctx context.Context, g cudatest.GPU, p device.Ptr) error
	}{
		"Flush": {waiting, func(ctx context.Context, g cudatest.GPU, _ device.Ptr) error { return g.Flush(ctx) }},
		"Trim":  {waiting, func(ctx context.Context, g cudatest.GPU, _ device.Ptr) error { return g.Trim(ctx) }},
		"Unregister": {
			func(g cudatest.GPU, p device.Ptr) error { return heapOf(g).Register(p, mappedSize, false) },
			func(ctx context.Context, g cudatest.GPU, p device.Ptr) error {
				return core.Of(g.Device).Unregister(ctx, p)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := cudatest.OneGPU(t, cudasim.Options{})
			p, _ := writable(t)
			open := g.M.Stranger(t, g.Device).Hold(t)
			require.NoError(t, row.prepare(g, p))
			locked := g.PageLocked(p, mappedSize)
			ended, cancel := context.WithCancel(background)
			cancel()
			for range 2 {
				within.Context(t, name, func(ctx context.Context) error { return row.wait(ctx, g, p) })
				assert.ErrorIs(t, row.wait(ended, g, p), context.Canceled)
			}
			assert.Equal(t, locked, g.PageLocked(p, mappedSize), "it is registered still")
			waits := make(chan error, 1)
			go func() { waits <- row.wait(background, g, p) }()
			open()
			within.Seconds(t, name+" when the stream goes on", func() error { return <-waits })
			assert.Zero(t, g.ReadStats().Lost)
			assert.False(t, g.PageLocked(p, mappedSize))
		})
	}
}
