package cudaalloc

import (
	"errors"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Lookup asks the driver what memory there is at p, including memory of other libraries. It
// makes a Device a device.Prober.
func (d *Device) Lookup(p device.Ptr) (device.Allocation, error) {
	known, err := d.ctx.Query(p)
	if err != nil {
		return device.Allocation{}, err
	}
	t := device.CUDA
	switch {
	case known.Managed:
		t = device.CUDAManaged
	case known.Memory == cuda.HostMemory:
		t = device.CUDAHost
	case known.Memory != cuda.DeviceMemory:
		return device.Allocation{ID: device.CPUDevice().ID()}, nil
	}
	return device.Allocation{
		ID:    device.ID{Type: t, Ordinal: int64(known.Ordinal)},
		Start: device.Ptr(known.Start), Size: int64(known.Size),
	}, nil
}

// lookup asks each driver of which a GPU is open. One GPU is enough: it knows the memory of
// all that its driver has. A driver that was shut down has none.
func lookup(p device.Ptr) (device.Allocation, error) {
	platforms.Lock()
	var open []*gpu
	for _, platform := range platforms.byDriver {
		if g := platform.open.Load(); g != nil {
			open = append(open, g)
		}
	}
	platforms.Unlock()
	for _, g := range open {
		found, err := g.own.Lookup(p)
		if errors.Is(err, cuda.Deinitialized) {
			g.platform.open.CompareAndSwap(g, nil)
			continue
		}
		if err != nil || found.ID.Type != device.CPU {
			return found, err
		}
	}
	return device.Allocation{ID: device.CPUDevice().ID()}, nil
}
