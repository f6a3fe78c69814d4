package copyplan

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// coreDevice hides the optional interfaces of a device.
type coreDevice struct{ device.Device }

// failingDevice enqueues copies and reports that they failed, as a device does of which one copy
// of several was refused.
type failingDevice struct{ coreDevice }

var errCopy = errors.New("one of the copies was refused")

func (d failingDevice) Copy(list []device.Range, s device.Stream) error {
	return errors.Join(errCopy, d.coreDevice.Copy(list, s))
}

// Memory of C that a device copies from or to stays allocated until the device has reached the end
// of these copies, even if one of them fails, or if the driver makes or records no event behind
// them.
func TestMemoryOfCIsFreedAfterItsWork(t *testing.T) {
	const size = 1000
	ctx := context.Background()
	host := func(t *testing.T, gpu *cudaalloc.Device) device.Memory {
		t.Helper()
		m, err := allocateHost(ctx, coreDevice{gpu}, size)
		require.NoError(t, err)
		return m
	}
	// copied uploads size bytes to memory of the GPU.
	copied := func(t *testing.T, gpu *cudaalloc.Device, by device.Device, s device.Stream) error {
		t.Helper()
		own, err := gpu.Allocate(ctx, size, s)
		require.NoError(t, err)
		content := make([]byte, size)
		defer runtime.KeepAlive(content)
		e, err := upload(ctx, by, []device.Range{{Dst: own.Ptr(), Src: device.Ptr(heap.AddressOf(content)), Size: size}}, s)
		if err == nil {
			require.NoError(t, e.Close())
		}
		require.NoError(t, own.Free(s))
		return err
	}
	for name, use := range map[string]func(*testing.T, *cudatest.Machine, *cudaalloc.Device, device.Stream){
		"Free": func(t *testing.T, _ *cudatest.Machine, gpu *cudaalloc.Device, s device.Stream) {
			require.NoError(t, host(t, gpu).Free(s))
		},
		"FreeAfter": func(t *testing.T, _ *cudatest.Machine, gpu *cudaalloc.Device, s device.Stream) {
			e, err := EventAfter(s)
			require.NoError(t, err)
			require.NoError(t, host(t, gpu).FreeAfter(e))
			require.NoError(t, e.Close())
		},
		"an upload": func(t *testing.T, _ *cudatest.Machine, gpu *cudaalloc.Device, s device.Stream) {
			require.NoError(t, copied(t, gpu, coreDevice{gpu}, s))
		},
		"an upload of which a copy fails": func(t *testing.T, _ *cudatest.Machine, gpu *cudaalloc.Device, s device.Stream) {
			require.ErrorIs(t, copied(t, gpu, failingDevice{coreDevice{gpu}}, s), errCopy)
		},
		"an upload whose event is not recorded": func(t *testing.T, m *cudatest.Machine, gpu *cudaalloc.Device, s device.Stream) {
			m.Sim.Fail("cuEventRecord", 1, 999)
			require.ErrorContains(t, copied(t, gpu, coreDevice{gpu}, s), "cuEventRecord")
		},
		"an upload without any event": func(t *testing.T, m *cudatest.Machine, gpu *cudaalloc.Device, s device.Stream) {
			m.Sim.FailTimes("cuEventRecord", 1, 2, 999)
			require.ErrorContains(t, copied(t, gpu, coreDevice{gpu}, s), "cuEventRecord")
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{})
			gpu := m.GPUs[0]
			s, err := gpu.NewStream()
			require.NoError(t, err)
			before := cAllocator.AllocatedBytes()
			open := m.Hold(t, s)
			m.Sim.ResetCounters()
			use(t, m, gpu, s)
			m.Sim.Fail("", 0, 0)
			assert.GreaterOrEqual(t, cAllocator.AllocatedBytes(), before+size, "it was freed while copies were pending")
			open()
			require.NoError(t, gpu.Flush(ctx))
			assert.Equal(t, before, cAllocator.AllocatedBytes())
			require.NoError(t, s.Close())
		})
	}
}

// Memory of Go for a copy is as GoAllocator's, but is not cleared: its size and alignment are the same, and the collector
// keeps it as long as any part of it is reachable.
func TestUninitializedMemory(t *testing.T) {
	for _, size := range []int{1, 63, 64, 1000, 1 << 20, 1<<20 + 1} {
		var kept [][]byte
		for range 8 {
			b := uninitialized(size)
			assert.Len(t, b, size)
			assert.Equal(t, size, cap(b))
			assert.Zero(t, abi.AddressOf(b)%64)
			for i := range b {
				b[i] = byte(len(kept) + 1)
			}
			kept = append(kept, b[size-1:]) // the end alone
		}
		runtime.GC()
		for range 8 {
			clear(uninitialized(size))
		}
		for i, b := range kept {
			assert.Equal(t, []byte{byte(i + 1)}, b)
		}
	}
}

// No memory is an error, and no panic, as from any allocator.
func TestAllocationWithoutMemory(t *testing.T) {
	_, err := allocateArrow(context.Background(), memory.NewGoAllocator(), math.MaxInt64/2)
	assert.ErrorContains(t, err, "cdevice: copy")
}

// A copy to the default allocator does not clear its memory first, which is that of garbage here.
func TestCopyToUsedMemoryIsNotCleared(t *testing.T) {
	const size = 1 << 20
	used := func() bool {
		for range 8 {
			cudatest.Fill(uninitialized(size), 7)
		}
		runtime.GC()
		for range 8 {
			b, err := allocateArrow(context.Background(), memory.DefaultAllocator, size)
			require.NoError(t, err)
			if bytes.Contains(b.Bytes(), []byte{7, 7, 7, 7}) {
				return true
			}
			b.Release()
		}
		return false
	}
	within.Eventually(t, "memory that is not cleared", used)
}
