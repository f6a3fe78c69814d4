package cudaalloc

import (
	"context"

	"github.com/arrowdevice/arrowdevice/device"
)

// Close gives a GPU back to its driver, and forgets it, so that it can be opened
// again. Its handles are dead then.
func Close(d *Device) error {
	if err := d.Trim(context.Background()); err != nil {
		return err
	}
	d.gpu.Platform.Forget(d.gpu)
	return d.gpu.Close()
}

// Current is the CUcontext that is current on the calling thread.
func Current(d *Device) uintptr { return d.gpu.Ctx.Driver().Current() }

// FreeElsewhere frees memory without the knowledge of its owner.
func (d *Device) FreeElsewhere(p device.Ptr) error { return d.gpu.Ctx.FreeMemory(p) }

// ForgetLost makes the statistics of a GPU true again whose memory was freed without its knowledge.
func (d *Device) ForgetLost() {
	d.gpu.Deferred.ForgetLost()
	d.gpu.Heap.ForgetLost()
}

// Ask takes the streams to ask about a capture, until asked is called.
func Ask(d *Device) (asked func()) { return d.gpu.Streams.Ask() }

// RegisterHost page-locks memory as package hostpinned does.
func (d *Device) RegisterHost(p device.Ptr, size int64, readOnly bool) error {
	return d.gpu.Heap.Register(p, size, readOnly)
}

// UnregisterHost undoes RegisterHost.
func (d *Device) UnregisterHost(ctx context.Context, p device.Ptr) error {
	return d.gpu.Unregister(ctx, p)
}
