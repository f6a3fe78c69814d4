package cudaarray

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// deviceOf asks the driver on which device the memory of an interface is.
func deviceOf(i *Interface) (device.Device, error) {
	if i.Data.Ptr == 0 {
		return device.Open(device.ID{Type: device.CUDA})
	}
	found, err := device.Lookup(i.Data.Ptr)
	if err != nil {
		return nil, err
	}
	if found.ID.Type == device.CPU {
		if _, err := device.Open(device.ID{Type: device.CUDA}); err != nil {
			return nil, err
		}
		if found, err = device.Lookup(i.Data.Ptr); err != nil {
			return nil, err
		}
	}
	if found.ID.Type == device.CPU {
		return nil, fielderr.Invalid(opImport, "data", fielderr.Hex(uintptr(i.Data.Ptr)), "the address of CUDA memory")
	}
	size, err := sizeOf(i)
	if err != nil {
		return nil, err
	}
	if err := checkWithin(found, "", i, size); err != nil {
		return nil, err
	}
	if m := i.Mask; m != nil && m.TypeStr == bits && len(m.Shape) == 1 {
		mask, err := device.Lookup(m.Data.Ptr)
		if err != nil {
			return nil, err
		}
		if err := checkWithin(mask, "mask.", m, (m.Shape[0]+7)/8); err != nil {
			return nil, err
		}
	}
	return device.Open(found.ID)
}

// sizeOf returns the bytes of the elements.
func sizeOf(i *Interface) (int64, error) {
	_, typestr, err := typeOf(i.TypeStr)
	if err != nil {
		return 0, err
	}
	count, err := checkShape(i.Shape, width(typestr))
	return count * width(typestr), err
}

// checkWithin checks that size bytes of an interface are in the allocation that its address is in. A driver may
// not know the size of page-locked memory.
func checkWithin(found device.Allocation, field string, i *Interface, size int64) error {
	if found.Size == 0 || found.Contains(i.Data.Ptr, size) {
		return nil
	}
	left := found.Size - int64(i.Data.Ptr-found.Start)
	return fielderr.Invalid(opImport, field+"shape", i.Shape, fmt.Sprintf("elements in the %d bytes that the allocation has from there, not %d", left, size))
}
