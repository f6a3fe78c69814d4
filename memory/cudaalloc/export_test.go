package cudaalloc

import (
	"context"

	"github.com/arrowdevice/arrowdevice/device"
)

// Hold holds a stream back until open is called.
func Hold(s device.Stream) (open func(), err error) {
	own := s.(*Stream)
	return own.gpu.ctx.Hold(own.word)
}

// Close gives a GPU back to its driver, and forgets it, so that it can be opened
// again. Its handles are dead then.
func Close(d *Device) error {
	if err := d.Trim(context.Background()); err != nil {
		return err
	}
	g := d.gpu
	g.platform.mu.Lock()
	delete(g.platform.gpus, int64(g.ctx.Ordinal()))
	g.platform.mu.Unlock()
	return g.close()
}

// Current is the CUcontext that is current on the calling thread.
func Current(d *Device) uintptr { return d.ctx.Driver().Current() }

// FreeElsewhere frees memory behind its owner's back.
func (d *Device) FreeElsewhere(p device.Ptr) error { return d.ctx.FreeMemory(p) }

// ForgetLost makes the statistics of a GPU whose memory was freed behind its back
// true again.
func (d *Device) ForgetLost() {
	d.deferred.lost.Store(0)
	d.usage[onDevice].live.Store(0)
	d.usage[onDevice].allocations.Store(0)
	d.registered.live.Store(0)
	d.registered.allocations.Store(0)
}

// Reclaiming reports whether an allocation is giving cached memory back.
func (d *Device) Reclaiming() bool { return len(d.reclaiming) > 0 }

// Ask takes the streams to ask about a capture, until asked is called.
func Ask(d *Device) (asked func()) {
	_ = d.streams.ask()
	return d.streams.asked
}

// BetweenCopies has f called by each upload to the GPU after each copy out of staging memory that it
// enqueues, until the function that it returns is called. No upload may run during the two calls.
func BetweenCopies(d *Device, f func()) (end func()) {
	d.staging.between = f
	return func() { d.staging.between = nil }
}

// Staged returns the bytes that are reserved for staging, and on how many streams.
func Staged(d *Device) (bytes int64, streams int) {
	d.staging.mu.Lock()
	defer d.staging.mu.Unlock()
	return d.staging.bytes, len(d.staging.streams)
}
