package gpu_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A prefetch is work of the stream that it is given.
func TestPrefetchIsWorkOfItsStream(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{Lazy: true})
	s, mem := g.Stream(), g.M.On(t, g.Managed()).Ready(1000)
	for name, prefetch := range map[string]func(device.Ptr, int64, device.Stream) error{
		"to the GPU": g.Prefetch, "to the host": g.PrefetchToHost,
	} {
		require.NoError(t, prefetch(mem.Ptr(), mem.Size(), s))
		assert.False(t, g.Done(s), name)
		require.NoError(t, s.Synchronize(background))
	}
}

// Copies are one crossing into C and one call of the driver per range, wherever the
// context has to be made current.
func TestCopyCalls(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	mem := g.Memory(1000, nil)
	g.Fill(mem.Ptr(), 1, 1000, nil)
	list := make([]device.Range, 100)
	for i := range list {
		list[i] = device.Range{Dst: mem.Ptr() + device.Ptr(5*i), Src: mem.Ptr() + device.Ptr(500+5*i), Size: 5}
	}
	g.M.Sim.ResetCounters()
	require.NoError(t, g.Copy(append(list, device.Range{}), nil), "an empty range is no call")
	assert.Equal(t, map[string]int{"cuMemcpyAsync": 100, "cuCtxGetCurrent": 1, "cuCtxSetCurrent": 2}, g.M.Sim.Report().Calls)
	allocations := testing.AllocsPerRun(10, func() {
		if err := g.Copy(list, nil); err != nil {
			t.Error(err)
		}
	})
	if !underASan { // which keeps the compiler from leaving functions on the stack
		assert.Zero(t, allocations)
	}

	list[7].Size = 1 << 40
	err := g.Copy(list, nil)
	assert.ErrorIs(t, err, cudaalloc.InvalidValue)
	assert.ErrorContains(t, err, "cuda: cuMemcpyAsync(0x")
	assert.ErrorContains(t, err, ", 1099511627776) on cuda:0")
}

// Work on a stream of one GPU with memory of another one's pool is done in the order of
// that stream, though the GPU does not reach the memory.
func TestGPUWorkOnAStreamOfAnotherGPU(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		if len(m.GPUs) < 2 {
			t.Skip("one GPU")
		}
		const n = 5000
		here, there := m.On(t, m.GPUs[0]), m.On(t, m.GPUs[1])
		s, mem := here.Stream(), there.Ready(n)
		locked := m.On(t, here.Pinned()).Memory(n, nil)
		from := cudatest.At(locked.Ptr(), n)

		open := m.Hold(t, s)
		there.Fill(mem.Ptr(), 1, n, s)
		assert.False(t, here.Done(s))
		open()
		here.Holds(1, mem.Ptr(), n, s)

		open = m.Hold(t, s)
		cudatest.Fill(from, 9) // a read that comes too early is detected
		here.Transfer(mem.Ptr(), locked.Ptr(), n, s)
		cudatest.Fill(from, 2)
		open()
		here.Holds(2, mem.Ptr(), n, s)

		open = m.Hold(t, s)
		plain := make([]byte, n-n/2)
		cudatest.Fill(plain, 3)
		event, err := there.Upload(background, append(
			cudatest.Range(mem.Ptr(), locked.Ptr(), n/2), cudatest.Range(mem.Ptr()+n/2, cudatest.Pointer(plain), n-n/2)...), s)
		runtime.KeepAlive(plain)
		require.NoError(t, err)
		assert.False(t, there.Done(event.(*cudaalloc.Event)))
		cudatest.Fill(from, 3)
		open()
		require.NoError(t, event.Synchronize(background))
		require.NoError(t, event.Close())
		here.Holds(3, mem.Ptr(), n, s)
	})
}

// Between GPUs each range is one cuMemcpyPeerAsync, and the driver is asked once per
// allocation whose memory it is; nothing else is called, and nothing waits.
func TestCopyBetweenGPUsCalls(t *testing.T) {
	for _, noPeer := range []bool{false, true} {
		m := cudatest.Simulated(t, cudasim.Options{Devices: 2, NoPeer: noPeer})
		a, b := m.On(t, m.GPUs[0]), m.On(t, m.GPUs[1])
		const n, pieces = 4096, 64
		src, dst := a.Ready(n), b.Memory(n, nil)
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
	}
}

// The stream of the caller could not be made to wait for the work. So the call does, and the
// caller may free the memory on that stream.
func TestWorkOfAnotherGPUIsWaitedFor(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2, Delay: time.Millisecond})
	here, there := m.On(t, m.GPUs[0]), m.On(t, m.GPUs[1])
	s, mem := here.Stream(), there.Ready(4096)
	m.Sim.Fail("cuEventRecord", 2, unknownError) // the one behind the work
	require.ErrorContains(t, there.Memset(mem.Ptr(), 1, 4096, s), "cuEventRecord")
	require.NoError(t, mem.Free(s))
	require.NoError(t, there.Trim(background))
}

// A copy of another GPU may read memory of this one: what waits for all work of this one waits for that, too.
func TestWorkOfOtherGPUsIsWaitedFor(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	here, there := m.On(t, m.GPUs[0]), m.On(t, m.GPUs[1])
	const n = 4096
	from, s := here.Ready(n), there.Stream()
	to := there.Memory(n, s)
	here.Fill(from.Ptr(), 2, n, nil)
	require.NoError(t, here.Legacy().Synchronize(background))
	open := m.Hold(t, s)
	there.Fill(to.Ptr(), 1, n, s)
	there.Transfer(to.Ptr(), from.Ptr(), n, s)
	m.Sim.ResetCounters()
	ended := make(chan error, 1)
	here.AfterWork(func() { ended <- from.FreeAfter(nil) })
	within.Eventually(t, "both are synchronised", func() bool { return m.Sim.Calls("cuCtxSynchronize") >= 2 })
	require.NoError(t, here.Legacy().Synchronize(background))
	assert.Empty(t, ended)
	open()
	within.Seconds(t, "the function", func() error { return <-ended })
	there.Holds(2, to.Ptr(), n, s)
}
