package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// pinned is the page-locked memory of a GPU.
func pinned(t *testing.T, o cudasim.Options) cudatest.GPU {
	g := cudatest.OneGPU(t, o)
	return g.M.On(t, g.Pinned())
}

// Memory that is freed on the default stream is not given out before its work is done, while
// a capture keeps an event from being recorded there.
func TestGPUFreeOnTheDefaultStreamWaitsForACapture(t *testing.T) {
	g := pinned(t, cudasim.Options{Lazy: true})
	const size = 1000
	mem := g.Memory(size, nil)
	theirs := g.M.BlockingStream(t, g.Device)
	g.Fill(mem.Ptr(), 1, size, nil)
	end := g.M.Capture(t, theirs, cudatest.Global)
	require.NoError(t, mem.Free(nil))
	assert.EqualValues(t, size, g.ReadStats().Pinned.Live)
	next := g.Memory(size, nil)
	assert.NotEqual(t, mem.Ptr(), next.Ptr())
	require.NoError(t, next.FreeAfter(nil))
	require.NoError(t, end())
	require.NoError(t, g.Flush(background))
	assert.Zero(t, g.ReadStats().Pinned.Live)
}

// Memory that is freed after an event of another device is freed after all work of its own.
func TestGPUFreeAfterAForeignEventWaits(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	const size = 1000
	own := g.Ready(size)
	s, open := g.Held()
	g.Fill(own.Ptr(), 1, size, s)
	foreign, err := device.CPUDevice().NewEvent()
	require.NoError(t, err)
	require.Error(t, own.FreeAfter(foreign))
	assert.EqualValues(t, size, g.ReadStats().Device.Live)
	open()
	require.NoError(t, g.Flush(background))
	assert.Zero(t, g.ReadStats().Device.Live)
}

// Memory that is freed on a stream that is being captured, whose events never complete, is freed after all
// work. The capture is invalid then, because the event was asked for.
func TestGPUFreeOnACapturedStream(t *testing.T) {
	g := pinned(t, cudasim.Options{})
	s, mem := g.Stream(), g.Memory(1000, nil)
	end := g.M.Capture(t, s, cudatest.Global)
	require.NoError(t, mem.Free(s))
	_ = end()
	within.Seconds(t, "Flush", func() error { return g.Flush(background) })
	assert.Zero(t, g.ReadStats().Pinned.Live)
}

// Writes of the host to page-locked and managed memory are visible to the GPU, and the reverse.
func TestGPUCPUAccessibleMemory(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, d := range m.Devices(t) {
			if !d.CPUAccessible() {
				continue
			}
			const n = 3000
			g := m.On(t, d)
			a, own := g.Ready(n), m.On(t, d.Own()).Memory(n, nil)
			host := cudatest.At(a.Ptr(), n)
			cudatest.Fill(host, 7)
			g.Transfer(own.Ptr(), a.Ptr(), n, nil)
			g.Fill(a.Ptr(), 0, n, nil)
			require.NoError(t, d.Legacy().Synchronize(background))
			assert.Equal(t, make([]byte, n), host)
			g.Transfer(a.Ptr(), own.Ptr(), n, nil)
			require.NoError(t, d.Legacy().Synchronize(background))
			want := make([]byte, n)
			cudatest.Fill(want, 7)
			assert.Equal(t, want, host)
		}
	})
}

func TestGPUStats(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	before := g.ReadStats()
	g.Memory(1000, nil)
	g.M.On(t, g.Pinned()).Memory(2000, nil)
	now := g.ReadStats()
	assert.EqualValues(t, 1000, now.Device.Live-before.Device.Live)
	assert.EqualValues(t, 1, now.Device.Allocations)
	assert.EqualValues(t, 2000, now.Pinned.Live-before.Pinned.Live)
	assert.GreaterOrEqual(t, now.Pinned.Peak, int64(2000))

	const n = 1000
	s := g.Stream()
	for i := range int64(n) {
		mem, err := g.Allocate(background, 1+5*i, s)
		require.NoError(t, err)
		require.NoError(t, mem.Free(s))
	}
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, g.Flush(background)) // without pools, memory is freed in the background
	after := g.ReadStats().Device
	assert.EqualValues(t, n, after.Total-now.Device.Total)
	assert.Equal(t, now.Device.Live, after.Live)
	if g.M.Sim != nil {
		assert.LessOrEqual(t, after.Peak, int64(1000+5*n))
	}
}
