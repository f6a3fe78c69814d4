// Package hostfile maps files in memory that other processes can open, and finds the device that page-locks them.
package hostfile

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
)

// Registrar returns gpu as the device that page-locks host memory for an option, which errors begin with.
func Registrar(option string, gpu device.Device) (device.HostRegistrar, error) {
	if argument.IsNil(gpu) {
		return nil, argument.Nil(option, "gpu", "a GPU")
	}
	r, ok := gpu.(device.HostRegistrar)
	if !ok {
		return nil, fmt.Errorf("%s: gpu is a %T, want a device that page-locks host memory: %w", option, gpu, device.ErrNotSupported)
	}
	return r, nil
}
