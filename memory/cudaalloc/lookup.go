package cudaalloc

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Allocation is what the driver knows of an address.
type Allocation struct {
	// ID is the kind of memory and the GPU it belongs to. The CPU: memory that the
	// driver does not know, plain host memory or memory that was freed.
	ID device.ID
	// Start and Size are those of the whole allocation, or registration, that the
	// address is in; zero for the CPU.
	Start device.Ptr
	Size  int64 // bytes
}

// Lookup asks the driver what memory there is at p, whoever allocated it.
func (d *Device) Lookup(p device.Ptr) (Allocation, error) {
	known, err := d.ctx.Query(p)
	if err != nil {
		return Allocation{}, err
	}
	t := device.CUDA
	switch {
	case known.Managed:
		t = device.CUDAManaged
	case known.Memory == cuda.HostMemory:
		t = device.CUDAHost
	case known.Memory != cuda.DeviceMemory:
		return Allocation{ID: device.Host().ID()}, nil
	}
	return Allocation{device.ID{Type: t, Ordinal: int64(known.Ordinal)}, device.Ptr(known.Start), int64(known.Size)}, nil
}
