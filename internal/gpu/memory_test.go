package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Memory that is freed on the default stream is not given out before its work is done, while
// a capture keeps an event from being recorded there.
func TestGPUFreeOnTheDefaultStreamWaitsForACapture(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	const size = 1000
	mem, err := gpu.Pinned().Allocate(background, size, nil)
	require.NoError(t, err)
	theirs := m.BlockingStream(t, gpu)
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, size, nil))
	end := m.Capture(t, theirs, cudatest.Global)
	require.NoError(t, mem.Free(nil))
	assert.EqualValues(t, size, gpu.ReadStats().Pinned.Live)
	next, err := gpu.Pinned().Allocate(background, size, nil)
	require.NoError(t, err)
	assert.NotEqual(t, mem.Ptr(), next.Ptr())
	require.NoError(t, next.FreeAfter(nil))
	require.NoError(t, end())
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}

// Memory that is freed after an event of another device is freed after all work of its own.
func TestGPUFreeAfterAForeignEventWaits(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	own, err := gpu.Allocate(background, size, nil)
	require.NoError(t, err)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	open := m.Hold(t, s)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, size, s))
	foreign, err := device.CPUDevice().NewEvent()
	require.NoError(t, err)
	require.Error(t, own.FreeAfter(foreign))
	assert.EqualValues(t, size, gpu.ReadStats().Device.Live)
	open()
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Device.Live)
	require.NoError(t, s.Close())
}

// Memory that is freed on a stream that is being captured, whose events never complete, is freed after all
// work. The capture is invalid then, because the event was asked for.
func TestGPUFreeOnACapturedStream(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := cudatest.NewStream(t, gpu)
	mem, err := gpu.Pinned().Allocate(background, 1000, nil)
	require.NoError(t, err)
	end := m.Capture(t, s, cudatest.Global)
	require.NoError(t, mem.Free(s))
	_ = end()
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}

func TestTheHostCannotTouchDeviceMemory(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		if m.Sim == nil {
			t.Skip("whether it faults on a real GPU is for its driver to say; the simulator is strict")
		}
		for _, d := range m.Devices(t) {
			for _, size := range []int64{1, 5000} {
				mem, err := d.Allocate(background, size, nil)
				require.NoError(t, err)
				require.NoError(t, d.Legacy().Synchronize(background))
				for _, offset := range []int64{0, size - 1} {
					p := mem.Ptr() + device.Ptr(offset)
					assert.Equal(t, !d.ID().Type.CPUAccessible(), touch(p, false), "%s: read", d.ID())
					assert.Equal(t, !d.ID().Type.CPUAccessible(), touch(p, true), "%s: write", d.ID())
				}
				require.NoError(t, mem.Free(nil))
			}
		}
	})
}

// Writes of the host to page-locked and managed memory are visible to the GPU, and the reverse.
func TestGPUHostReadableMemory(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, d := range m.Devices(t) {
			if !d.CPUAccessible() {
				continue
			}
			const n = 3000
			a, err := d.Allocate(background, n, nil)
			require.NoError(t, err)
			own, err := d.Own().Allocate(background, n, nil)
			require.NoError(t, err)
			for i := range cudatest.At(a.Ptr(), n) {
				cudatest.At(a.Ptr(), n)[i] = byte(i)
			}
			there := []device.Range{{Dst: own.Ptr(), Src: a.Ptr(), Size: n}}
			require.NoError(t, d.Copy(there, nil))
			require.NoError(t, d.Memset(a.Ptr(), 0, n, nil))
			require.NoError(t, d.Legacy().Synchronize(background))
			assert.Equal(t, make([]byte, n), cudatest.At(a.Ptr(), n))
			back := []device.Range{{Dst: a.Ptr(), Src: own.Ptr(), Size: n}}
			require.NoError(t, d.Copy(back, nil))
			require.NoError(t, d.Legacy().Synchronize(background))
			for i, v := range cudatest.At(a.Ptr(), n) {
				require.Equal(t, byte(i), v)
			}
			require.NoError(t, a.Free(nil))
			require.NoError(t, own.Free(nil))
		}
	})
}

// Without memory, pending frees are done first; only then does the allocation fail.
func TestOutOfMemory(t *testing.T) {
	for name, options := range map[string]cudasim.Options{
		"pools": {Memory: 64 << 20, HostMemory: 64 << 20}, "no pools": {Memory: 64 << 20, HostMemory: 64 << 20, NoPools: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, options)
			for _, d := range []*cudaalloc.Device{m.GPUs[0], m.GPUs[0].Pinned()} {
				s, err := d.NewStream()
				require.NoError(t, err)
				first, err := d.Allocate(background, 40<<20, s)
				require.NoError(t, err)
				_, err = d.Allocate(background, 40<<20, s)
				assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
				open, err := hold(s)
				require.NoError(t, err)
				require.NoError(t, first.Free(s)) // not free as long as the stream is held
				done := make(chan error, 1)
				go func() {
					second, err := d.Allocate(background, 40<<20, d.Legacy())
					if err == nil {
						err = second.Free(d.Legacy())
					}
					done <- err
				}()
				open()
				assert.NoError(t, <-done, "%s: waits for what is being freed", d.ID())
				small, err := d.Allocate(background, 1<<20, s)
				require.NoError(t, err, "usable afterwards")
				require.NoError(t, small.Free(s))
				require.NoError(t, s.Synchronize(background))
				require.NoError(t, s.Close())
			}
		})
	}
}

func TestGPUManyAllocationsLeaveNothing(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	n := 100_000
	if testing.Short() {
		n = 1000
	}
	gpu := m.GPUs[0]
	before := gpu.ReadStats().Device
	s, err := gpu.NewStream()
	require.NoError(t, err)
	for i := range n {
		mem, err := gpu.Allocate(background, int64(1+i%5000), s)
		require.NoError(t, err)
		require.NoError(t, mem.Free(s))
	}
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, s.Close())
	require.NoError(t, gpu.Flush(background)) // without pools, memory is freed in the background
	stats := gpu.ReadStats().Device
	assert.EqualValues(t, n, stats.Total-before.Total)
	assert.Zero(t, stats.Live)
	if m.Sim != nil {
		assert.LessOrEqual(t, stats.Peak, max(before.Peak, 5000))
	}
}

func TestGPUStats(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	before := gpu.ReadStats()
	a, err := gpu.Allocate(background, 1000, nil)
	require.NoError(t, err)
	b, err := gpu.Pinned().Allocate(background, 2000, nil)
	require.NoError(t, err)
	s := gpu.ReadStats()
	assert.EqualValues(t, 1000, s.Device.Live-before.Device.Live)
	assert.EqualValues(t, 1, s.Device.Allocations)
	assert.EqualValues(t, 2000, s.Pinned.Live-before.Pinned.Live)
	assert.GreaterOrEqual(t, s.Pinned.Peak, int64(2000))
	require.NoError(t, a.Free(nil))
	require.NoError(t, b.Free(nil))
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Device.Live+gpu.ReadStats().Pinned.Live)
}
