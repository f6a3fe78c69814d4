package gpu_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// background is the context of calls that no test ends.
var background = context.Background()

// seconds returns a context for calls that may take some seconds.
func seconds(t *testing.T, n time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(background, n*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// touch reads or writes host memory at p and reports whether that faults.
func touch(p device.Ptr, write bool) (faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { faulted = recover() != nil }()
	b := cudatest.At(p, 1)
	if write {
		b[0] = 1
	} else {
		sink = b[0]
	}
	return
}

// sink keeps the bytes that touch reads.
var sink byte

// goPinned is Go memory that copies may write to until the test ends.
func goPinned(t *testing.T, n int) []byte {
	b := make([]byte, n)
	pins := new(runtime.Pinner)
	pins.Pin(&b[0])
	t.Cleanup(pins.Unpin)
	return b
}

const unknownError = 999 // CUDA_ERROR_UNKNOWN

// hold holds a stream back until open is called.
func hold(s device.Stream) (open func(), err error) { return core.Of(s.Device()).Ctx.Hold(s.Handle()) }

// heapOf is the heap of a GPU.
func heapOf(d *cudaalloc.Device) *core.Heap { return &core.Of(d).Heap }

const mib = 1 << 20

// limited changes limits of the GPU.
func limited(t *testing.T, d *cudaalloc.Device, change func(*cudaalloc.Limits)) {
	t.Helper()
	limits := d.Limits()
	change(&limits)
	require.NoError(t, d.SetLimits(limits))
}

// freed is a round of memory that work on s uses.
func freed(ctx context.Context, d *cudaalloc.Device, size int64, s device.Stream) error {
	mem, err := d.Allocate(ctx, size, s)
	if err != nil {
		return err
	}
	if err := d.Memset(mem.Ptr(), 1, size, s); err != nil {
		return err
	}
	return mem.Free(s)
}

// memoryOn returns a stream of the GPU and memory that was allocated on it.
func memoryOn(t *testing.T, gpu *cudaalloc.Device, size int64) (device.Stream, device.Memory) {
	t.Helper()
	s, err := gpu.NewStream()
	require.NoError(t, err)
	own, err := gpu.Allocate(background, size, s)
	require.NoError(t, err)
	return s, own
}
