package cudaalloc

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// RegisterHost page-locks existing host memory until [Device.UnregisterHost]; the memory must
// stay mapped until then. readOnly is for memory that must not be written, which is an error unless
// [Device.RegistersReadOnly]. hostpinned.Register does this for a slice.
func (d *Device) RegisterHost(p device.Ptr, size int64, readOnly bool) error {
	if err := d.ctx.Register(p, size, readOnly); err != nil {
		return err
	}
	d.platform.locked.add(p, size, false)
	return nil
}

// UnregisterHost undoes RegisterHost, after all work already enqueued on the GPU and on the other GPUs
// that are open, for which the memory is page-locked, too. Where ctx ends that wait, or the driver
// fails, the memory stays registered.
func (d *Device) UnregisterHost(ctx context.Context, p device.Ptr) error {
	if err := checkContext("unregister host memory", ctx); err != nil {
		return err
	}
	for _, g := range append(d.platform.others(d.gpu), d.gpu) {
		if err := g.idle(ctx); err != nil {
			return err
		}
	}
	if err := d.ctx.Unregister(p); err != nil {
		return err
	}
	d.platform.locked.remove(p)
	return nil
}

// RegisterMemory is RegisterHost for memory that ends as any other: Free and FreeAfter unregister it, once
// the GPU has no work, and never while a capture of a stream is visible. The memory must stay mapped until
// then; unregistered, unless it is nil, is called as the function of [Device.OpenMemory] is.
// [Stats.Registered] counts the memory.
func (d *Device) RegisterMemory(p device.Ptr, size int64, readOnly bool, unregistered func()) (device.Memory, error) {
	if p == 0 || size <= 0 {
		return nil, fmt.Errorf("cuda: register %d bytes at %#x on %s: want at least one byte of host memory", size, uintptr(p), d.host.ID())
	}
	if err := d.RegisterHost(p, size, readOnly); err != nil {
		return nil, err
	}
	m := &memory{dev: d.host, use: &d.registered, ptr: p, size: size, drop: d.ctx.Unregister, after: unregistered}
	m.use.add(size)
	return m, nil
}

// RegistersReadOnly reports whether the GPU can page-lock memory that is mapped read-only
// (CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED).
func (d *Device) RegistersReadOnly() (bool, error) {
	value, err := d.ctx.Device.Attribute(cuda.ReadOnlyHostRegister)
	if errors.Is(err, cuda.InvalidValue) { // a driver that does not know the attribute
		return false, nil
	}
	return value != 0, err
}
