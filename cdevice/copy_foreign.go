package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Copies between two backends go over the CPU: a backend is given no address of another one's memory.

// isForeign reports whether neither the CPU nor a device of dev's type can access the memory.
func isForeign(at tree.Location, dev device.Device) bool {
	return tree.StreamType(at.ID.Type) != tree.StreamType(dev.ID().Type) && !at.CPUAccessible()
}

// copyOverCPU is CopyTo in two steps, of memory that is foreign to dev.
func copyOverCPU[T interface {
	CopyTo(context.Context, device.Device, ...CopyOption) (T, error)
	Release()
}](ctx context.Context, from T, dev device.Device, opts []CopyOption) (T, error) {
	here, err := from.CopyTo(ctx, device.CPUDevice())
	if err != nil {
		return here, err
	}
	defer here.Release()
	return here.CopyTo(ctx, dev, opts...)
}
