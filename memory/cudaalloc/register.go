package cudaalloc

import (
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// RegisterMemory page-locks host memory that something else has allocated, and that ends as any other memory: Free
// and FreeAfter unregister it, once the GPU has no work, and never while a capture of a stream is visible. The
// memory must stay mapped until then; unregistered, unless it is nil, is called as the function of
// [Device.OpenMemory] is. [Stats.Registered] counts the memory.
//
// readOnly is for memory that must not be written, which is an error unless [Device.RegistersReadOnly].
// hostpinned.Register page-locks a slice of the program.
func (d *Device) RegisterMemory(p device.Ptr, size int64, readOnly bool, unregistered func()) (device.Memory, error) {
	if p == 0 || size <= 0 {
		return nil, fmt.Errorf("cuda: register %d bytes at %#x on %s: want at least one byte of host memory", size, uintptr(p), d.Pinned().ID())
	}
	m := &memory{dev: d.Pinned()}
	if err := d.gpu.Heap.RegisterMemory(&m.Memory, p, size, readOnly, unregistered); err != nil {
		return nil, err
	}
	return m, nil
}

// RegistersReadOnly reports whether the GPU can page-lock memory that is mapped read-only
// (CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED).
func (d *Device) RegistersReadOnly() (bool, error) {
	value, err := d.gpu.Ctx.Device.Attribute(cuda.ReadOnlyHostRegister)
	if errors.Is(err, cuda.InvalidValue) { // a driver that does not know the attribute
		return false, nil
	}
	return value != 0, err
}
