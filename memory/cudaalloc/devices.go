package cudaalloc

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Info describes a GPU that need not be open.
type Info struct {
	Ordinal           int64
	Name              string
	UUID              [16]byte
	PCIBusID          string // "0000:3b:00.0"
	TotalMemory       int64  // bytes
	ComputeCapability [2]int // major, minor
}

// String returns a text for people: "cuda:0 NVIDIA H200 (140 GiB, compute capability 9.0, 0000:3b:00.0)".
func (i Info) String() string {
	return fmt.Sprintf("cuda:%d %s (%d GiB, compute capability %d.%d, %s)", i.Ordinal, i.Name,
		(i.TotalMemory+1<<29)>>30, i.ComputeCapability[0], i.ComputeCapability[1], i.PCIBusID)
}

// Devices lists the GPUs of the driver in the order of their ordinals. It opens
// none: no context is made, no memory of a GPU is used. Without a driver or a GPU
// the error wraps device.ErrNotSupported.
func Devices(opts ...Option) ([]Info, error) {
	p, err := openPlatform("Devices", opts)
	if err != nil {
		return nil, err
	}
	count, err := p.Driver.DeviceCount()
	if err != nil {
		return nil, err
	}
	infos := make([]Info, count)
	for i := range infos {
		if infos[i], err = describe(p.Driver, i); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func describe(driver *cuda.Driver, ordinal int) (Info, error) {
	i := Info{Ordinal: int64(ordinal)}
	dev, err := driver.Device(ordinal)
	if err != nil {
		return i, err
	}
	if i.Name, err = dev.Name(); err != nil {
		return i, err
	}
	if i.UUID, err = dev.UUID(); err != nil {
		return i, err
	}
	if i.PCIBusID, err = dev.PCIBusID(); err != nil {
		return i, err
	}
	if i.TotalMemory, err = dev.TotalMemory(); err != nil {
		return i, err
	}
	for part, attribute := range [2]cuda.Attribute{cuda.ComputeCapabilityMajor, cuda.ComputeCapabilityMinor} {
		if i.ComputeCapability[part], err = dev.Attribute(attribute); err != nil {
			return i, err
		}
	}
	return i, nil
}

// DriverVersion returns the newest version of CUDA that the driver supports, as the
// driver writes it: 1000 times the major number plus 10 times the minor one.
func DriverVersion(opts ...Option) (int, error) {
	p, err := openPlatform("DriverVersion", opts)
	if err != nil {
		return 0, err
	}
	return p.Driver.Version()
}

// uuids lists the GPUs of the default driver for device.UUIDs.
func uuids() ([][16]byte, error) {
	infos, err := Devices()
	if err != nil {
		return nil, err
	}
	list := make([][16]byte, len(infos))
	for i, info := range infos {
		list[i] = info.UUID
	}
	return list, nil
}
