package gpu_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A prefetch is work of the stream that it is given.
func TestPrefetchIsWorkOfItsStream(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	mem, err := cudaalloc.NewManagedAllocator(gpu)
	require.NoError(t, err)
	b := mem.Allocate(1000)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	for name, prefetch := range map[string]func(device.Ptr, int64, device.Stream) error{
		"to the GPU": gpu.Prefetch, "to the host": gpu.PrefetchToHost,
	} {
		require.NoError(t, prefetch(cudatest.Pointer(b), int64(len(b)), s))
		done, err := s.(*cudaalloc.Stream).Query()
		require.NoError(t, err)
		assert.False(t, done, name)
		require.NoError(t, s.Synchronize(background))
	}
	mem.Free(b)
	require.NoError(t, s.Close())
}

// Copies are one crossing into C and one call of the driver per range, wherever the
// context has to be made current.
func TestCopyCalls(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := gpu.Allocate(background, 1000, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, 1000, nil))
	list := make([]device.Range, 100)
	for i := range list {
		list[i] = device.Range{Dst: mem.Ptr() + device.Ptr(5*i), Src: mem.Ptr() + device.Ptr(500+5*i), Size: 5}
	}
	m.Sim.ResetCounters()
	require.NoError(t, gpu.Copy(append(list, device.Range{}), nil), "an empty range is no call")
	calls := m.Sim.Report().Calls
	assert.Equal(t, map[string]int{"cuMemcpyAsync": 100, "cuCtxGetCurrent": 1, "cuCtxSetCurrent": 2}, calls)
	allocations := testing.AllocsPerRun(10, func() {
		if err := gpu.Copy(list, nil); err != nil {
			t.Error(err)
		}
	})
	assert.Zero(t, allocations)

	list[7].Size = 1 << 40
	err = gpu.Copy(list, nil)
	assert.ErrorIs(t, err, cudaalloc.InvalidValue)
	assert.ErrorContains(t, err, "cuda: cuMemcpyAsync(0x")
	assert.ErrorContains(t, err, ", 1099511627776) on cuda:0")
	require.NoError(t, mem.Free(nil))
}

// pageLocked is page-locked memory of a GPU, and its bytes.
func pageLocked(t *testing.T, gpu *cudaalloc.Device, n int) (device.Ptr, []byte) {
	m, err := gpu.Pinned().Allocate(background, int64(n), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Free(nil)) })
	return m.Ptr(), cudatest.At(m.Ptr(), n)
}

// Work on a stream of one GPU with memory of another one's pool is done in the order of
// that stream, though the GPU does not reach the memory.
func TestGPUWorkOnAStreamOfAnotherGPU(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		if len(m.GPUs) < 2 {
			t.Skip("one GPU")
		}
		const n = 5000
		here, there := m.GPUs[0], m.GPUs[1]
		s, err := here.NewStream()
		require.NoError(t, err)
		defer s.Close()
		memory, err := there.Allocate(background, n, nil)
		require.NoError(t, err)
		require.NoError(t, there.Legacy().Synchronize(background))
		p, from := pageLocked(t, here, n)
		q, to := pageLocked(t, there, n)
		copied := func(what string, want byte) {
			require.NoError(t, here.Copy([]device.Range{{Dst: q, Src: memory.Ptr(), Size: n}}, s))
			require.NoError(t, s.Synchronize(background))
			assert.Equal(t, bytes.Repeat([]byte{want}, n), to, what)
		}

		open := m.Hold(t, s)
		require.NoError(t, there.Memset(memory.Ptr(), 1, n, s))
		done, err := s.(*cudaalloc.Stream).Query()
		require.NoError(t, err)
		assert.False(t, done)
		open()
		copied("filled", 1)

		open = m.Hold(t, s)
		for i := range from {
			from[i] = 9 // a read that comes too early is detected
		}
		require.NoError(t, here.Copy([]device.Range{{Dst: memory.Ptr(), Src: p, Size: n}}, s))
		for i := range from {
			from[i] = 2
		}
		open()
		copied("copied from the host", 2)

		open = m.Hold(t, s)
		plain := bytes.Repeat([]byte{3}, n-n/2)
		event, err := there.Upload(background, []device.Range{
			{Dst: memory.Ptr(), Src: p, Size: n / 2}, {Dst: memory.Ptr() + n/2, Src: cudatest.Pointer(plain), Size: n - n/2},
		}, s)
		runtime.KeepAlive(plain)
		require.NoError(t, err)
		done, err = event.(*cudaalloc.Event).Query()
		require.NoError(t, err)
		assert.False(t, done)
		for i := range from {
			from[i] = 3
		}
		open()
		require.NoError(t, event.Synchronize(background))
		require.NoError(t, event.Close())
		copied("uploaded", 3)
		require.NoError(t, memory.Free(nil))
	})
}

// Between GPUs each range is one cuMemcpyPeerAsync, and the driver is asked once per
// allocation whose memory it is; nothing else is called, and nothing waits.
func TestCopyBetweenGPUsCalls(t *testing.T) {
	for _, noPeer := range []bool{false, true} {
		m := cudatest.Simulated(t, cudasim.Options{Devices: 2, NoPeer: noPeer})
		a, b := m.GPUs[0], m.GPUs[1]
		const n, pieces = 4096, 64
		src, err := a.Allocate(background, n, nil)
		require.NoError(t, err)
		dst, err := b.Allocate(background, n, nil)
		require.NoError(t, err)
		require.NoError(t, a.Legacy().Synchronize(background))
		var ranges []device.Range
		for i := range device.Ptr(pieces) {
			ranges = append(ranges, device.Range{Dst: dst.Ptr() + i*n/pieces, Src: src.Ptr() + i*n/pieces, Size: n / pieces})
		}
		m.Sim.ResetCounters()
		require.NoError(t, b.Copy(ranges, b.Legacy()))
		r := m.Sim.Report()
		delete(r.Calls, "cuCtxGetCurrent")
		delete(r.Calls, "cuCtxSetCurrent")
		assert.Equal(t, map[string]int{"cuMemcpyPeerAsync": pieces, "cuPointerGetAttributes": 2}, r.Calls)
		assert.Zero(t, r.Synchronisations)
		require.NoError(t, b.Legacy().Synchronize(background))
		assert.EqualValues(t, n, m.Sim.Report().Bytes.Peer)
		require.NoError(t, dst.Free(nil))
		require.NoError(t, src.Free(nil))
	}
}

// The stream of the caller could not be made to wait for the work. So the call does, and the
// caller may free the memory on that stream.
func TestWorkOfAnotherGPUIsWaitedFor(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2, Delay: time.Millisecond})
	here, there := m.GPUs[0], m.GPUs[1]
	s, err := here.NewStream()
	require.NoError(t, err)
	defer s.Close()
	memory, err := there.Allocate(background, 4096, nil)
	require.NoError(t, err)
	require.NoError(t, there.Legacy().Synchronize(background))
	m.Sim.Fail("cuEventRecord", 2, unknownError) // the one behind the work
	require.ErrorContains(t, there.Memset(memory.Ptr(), 1, 4096, s), "cuEventRecord")
	require.NoError(t, memory.Free(s))
	require.NoError(t, there.Trim(background))
}
