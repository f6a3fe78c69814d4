package cudaalloc_test

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// mapped is host memory that is mapped until the test ends, unless its unmap is called.
func mapped(t *testing.T, protection int) (b []byte, unmap func()) {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, 8192, protection, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	var done atomic.Bool
	unmap = func() {
		if !done.Swap(true) {
			assert.NoError(t, syscall.Munmap(b))
		}
	}
	t.Cleanup(unmap)
	return b, unmap
}

// Registered memory is page-locked until the work that reads it is done, and its owner is told when it may unmap it.
func TestGPURegisteredMemoryEndsAfterItsWork(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		b, unmap := mapped(t, syscall.PROT_READ|syscall.PROT_WRITE)
		cudatest.Fill(b, 7)
		ended := make(chan struct{})
		mem, err := gpu.RegisterMemory(cudatest.Pointer(b), int64(len(b)), false, func() { unmap(); close(ended) })
		require.NoError(t, err)
		assert.True(t, gpu.PageLocked(cudatest.Pointer(b), int64(len(b))))
		assert.Equal(t, device.CUDAHost, lookup(t, gpu, cudatest.Pointer(b)).ID.Type)
		assert.EqualValues(t, len(b), gpu.ReadStats().Registered.Live)

		s, err := gpu.NewStream()
		require.NoError(t, err)
		own, err := gpu.Allocate(background, int64(len(b)), s)
		require.NoError(t, err)
		let := m.Hold(t, s)
		require.NoError(t, gpu.Copy([]device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(b), Size: int64(len(b))}}, s))
		require.NoError(t, mem.FreeAfter(nil))
		assert.Zero(t, gpu.ReadStats().WaitingBytes, "nobody gets memory back")
		assert.ErrorContains(t, mem.FreeAfter(nil), "freed twice")
		select {
		case <-ended:
			t.Error("the copy has not begun")
		default:
		}
		let()
		require.NoError(t, gpu.Flush(background))
		<-ended
		assert.False(t, gpu.PageLocked(cudatest.Pointer(b), int64(len(b))))
		assert.Zero(t, gpu.ReadStats().Registered.Live)
		got := toHost(t, gpu, own.Ptr(), int64(len(b)), s)
		for i := range got {
			require.EqualValues(t, 7, got[i])
		}
		require.NoError(t, own.Free(s))
		require.NoError(t, s.Close())
	})
}

func lookup(t *testing.T, gpu *cudaalloc.Device, p device.Ptr) device.Allocation {
	t.Helper()
	in, err := gpu.Lookup(p)
	require.NoError(t, err)
	return in
}

// Flush waits for the function that is called once memory is unregistered, on each way that memory ends.
func TestGPUFlushWaitsForUnregistered(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s, err := gpu.NewStream()
	require.NoError(t, err)
	for name, free := range map[string]func(device.Memory) error{
		"on a stream":    func(mem device.Memory) error { return mem.Free(s) },
		"after no event": func(mem device.Memory) error { return mem.FreeAfter(nil) },
	} {
		b, unmap := mapped(t, syscall.PROT_READ|syscall.PROT_WRITE)
		var called atomic.Int32
		mem, err := gpu.RegisterMemory(cudatest.Pointer(b), int64(len(b)), false, func() {
			time.Sleep(50 * time.Millisecond)
			called.Add(1)
		})
		require.NoError(t, err)
		let := m.Hold(t, s)
		require.NoError(t, gpu.Memset(mem.Ptr(), 1, mem.Size(), s))
		require.NoError(t, free(mem))
		assert.Zero(t, called.Load(), name)
		time.AfterFunc(20*time.Millisecond, let)
		require.NoError(t, gpu.Flush(background))
		assert.EqualValues(t, 1, called.Load(), name)
		unmap()
	}
	require.NoError(t, s.Close())
}

// A capture of another library is not invalidated: the memory stays registered until it has ended.
func TestGPURegisteredMemoryAndCaptures(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	b, unmap := mapped(t, syscall.PROT_READ|syscall.PROT_WRITE)
	captured, err := gpu.NewStream()
	require.NoError(t, err)
	defer captured.Close()
	end := m.Capture(t, captured, cudatest.Global)
	mem, err := gpu.RegisterMemory(cudatest.Pointer(b), int64(len(b)), false, unmap)
	require.NoError(t, err)
	require.NoError(t, mem.FreeAfter(nil))
	assert.NoError(t, end(), "the capture")
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Registered.Live)
}

// Memory that the driver does not unregister must stay mapped: its owner is not told that it has ended.
func TestRegisteredMemoryIsLost(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	b, unmap := mapped(t, syscall.PROT_READ|syscall.PROT_WRITE)
	for fails, want := range map[int]int{1: 1, 2: 1, 3: 0} {
		called := 0
		mem, err := gpu.RegisterMemory(cudatest.Pointer(b), int64(len(b)), false, func() { called++ })
		require.NoError(t, err)
		m.Sim.ResetCounters()
		m.Sim.FailTimes("cuMemHostUnregister", 1, fails, unknownError)
		require.NoError(t, mem.FreeAfter(nil))
		err = gpu.Flush(background)
		m.Sim.Fail("", 0, 0)
		assert.Equal(t, want, called, "%d failures", fails)
		assert.EqualValues(t, 1-want, gpu.ReadStats().Lost)
		if want == 0 {
			if err != nil { // of a free that Flush made; one that the poller made before is counted alone
				assert.ErrorContains(t, err, "cuMemHostUnregister")
			}
			gpu.ForgetLost()
			require.NoError(t, gpu.UnregisterHost(background, cudatest.Pointer(b)))
		}
	}
	unmap()
}

// Memory that is mapped read-only is registered as such, or refused where the GPU cannot.
func TestReadOnlyMemoryIsRegistered(t *testing.T) {
	for _, can := range []bool{true, false} {
		m := cudatest.Simulated(t, cudasim.Options{NoReadOnlyRegister: !can})
		gpu := m.GPUs[0]
		got, err := gpu.RegistersReadOnly()
		require.NoError(t, err)
		assert.Equal(t, can, got)
		b, _ := mapped(t, syscall.PROT_READ)
		mem, err := gpu.RegisterMemory(cudatest.Pointer(b), int64(len(b)), true, nil)
		if can {
			require.NoError(t, err)
			require.NoError(t, mem.FreeAfter(nil))
			require.NoError(t, gpu.Flush(background))
		} else {
			assert.ErrorIs(t, err, device.ErrNotSupported)
		}
		_, err = gpu.RegisterMemory(cudatest.Pointer(b), int64(len(b)), false, nil)
		assert.ErrorIs(t, err, cudaalloc.InvalidValue, "the GPU could write it")
		_, err = gpu.RegisterMemory(cudatest.Pointer(b), 0, true, nil)
		assert.ErrorContains(t, err, "register 0 bytes")
		assert.Zero(t, gpu.ReadStats().Registered.Live)
	}
}

// Memory that one GPU has page-locked is page-locked for all: another one may copy from it.
func TestGPUUnregisteringWaitsForPeers(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		if len(m.GPUs) < 2 {
			t.Skip("this machine has one GPU")
		}
		const size = 1 << 16
		content := make([]byte, size)
		require.NoError(t, m.GPUs[0].RegisterHost(cudatest.Pointer(content), size, false))
		peer := m.GPUs[1]
		s := cudatest.NewStream(t, peer)
		target, err := peer.Allocate(background, size, s)
		require.NoError(t, err)
		require.NoError(t, peer.Copy([]device.Range{{Dst: target.Ptr(), Src: cudatest.Pointer(content), Size: size}}, s))
		require.NoError(t, m.GPUs[0].UnregisterHost(background, cudatest.Pointer(content)))
		require.NoError(t, target.Free(s))
		require.NoError(t, s.Synchronize(background))
		runtime.KeepAlive(content)
	})
}
