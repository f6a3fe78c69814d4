package cudaalloc

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Copy enqueues all ranges on s. Sources and destinations are memory of any GPU that this
// process has open, page-locked, managed or plain host memory. Plain memory is slower,
// and the driver may wait for the copy.
//
// Where the machine has several GPUs, the driver is asked which of them owns each address.
// Copies between two GPUs need no peer access. A copy between the host and a GPU other than
// that of s runs on a stream of that GPU, in order with s.
//
// After an error, the ranges before the one that the error names are enqueued.
func (d *Device) Copy(ranges []device.Range, s device.Stream) error {
	for i, r := range ranges {
		if r.Size < 0 {
			return fmt.Errorf("cuda: copy on %s: ranges[%d].Size = %d: negative size", d.ID(), i, r.Size)
		}
	}
	ctx, stream, err := d.on(s)
	if err != nil {
		return err
	}
	writesHost(s)
	if !d.platform.several.Load() {
		return ctx.Copy(ranges, stream)
	}
	return d.gpuOf(s).copyAcross(ranges, stream)
}

// Memset enqueues on s the filling of size bytes at p with value.
func (d *Device) Memset(p device.Ptr, value byte, size int64, s device.Stream) error {
	if size < 0 {
		return fmt.Errorf("cuda: memset on %s: negative size %d", d.ID(), size)
	}
	ctx, stream, err := d.on(s)
	if err != nil || size == 0 {
		return err
	}
	if d.kind != device.CUDA {
		writesHost(s)
	}
	if gpu := d.gpuOf(s); gpu != d.gpu && d.kind == device.CUDA {
		return gpu.detour(d.gpu, stream, func(stream uintptr) error { return d.ctx.Memset(p, value, size, stream) })
	}
	return ctx.Memset(p, value, size, stream)
}

// Prefetch enqueues on s the moving of managed memory to this GPU, so that its
// work finds it there.
func (d *Device) Prefetch(p device.Ptr, size int64, s device.Stream) error {
	return d.prefetch(p, size, d.ctx.Ordinal(), s)
}

// PrefetchToHost enqueues on s the moving of managed memory to the host.
func (d *Device) PrefetchToHost(p device.Ptr, size int64, s device.Stream) error {
	return d.prefetch(p, size, cuda.HostOrdinal, s)
}

func (d *Device) prefetch(p device.Ptr, size int64, ordinal int, s device.Stream) error {
	if size < 0 {
		return fmt.Errorf("cuda: prefetch on %s: negative size %d", d.ID(), size)
	}
	ctx, stream, err := d.on(s)
	if err != nil || size == 0 {
		return err
	}
	return ctx.Prefetch(p, size, ordinal, stream)
}
