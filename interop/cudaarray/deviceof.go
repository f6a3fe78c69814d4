package cudaarray

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// DeviceOf asks the driver on which device the memory of an interface is, and returns that device,
// for [Import]. The driver must be the default one. If no open GPU of this process knows the
// memory, DeviceOf opens the first GPU and asks again; a program that does not want the first GPU's
// primary context opens another GPU before. An empty array has no address, and so no device.
func DeviceOf(i Interface) (device.Device, error) {
	at := fielderr.Hex(uintptr(i.Data.Ptr))
	if i.Data.Ptr == 0 {
		return nil, fielderr.Invalid(fielderr.OpImport, "data", at, "an address: an empty array is on no device, so name one")
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
		return nil, fielderr.Invalid(fielderr.OpImport, "data", at, "the address of CUDA memory")
	}
	return device.Open(found.ID)
}
