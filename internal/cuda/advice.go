//go:build cgo

package cuda

import (
	"fmt"
	"os"

	"github.com/arrowdevice/arrowdevice/device"
)

// visibleVariable is the environment variable by which the driver hides GPUs from a process.
const visibleVariable = "CUDA_VISIBLE_DEVICES"

// notLoaded is the error for a library that the system cannot load.
func notLoaded(path, reason string) error {
	advice := "install NVIDIA's driver (nvidia-smi lists the GPUs if there is one), start a container with its GPUs " +
		"(docker run --gpus all), or name the driver's library in " + PathVariable
	if path != systemPath() {
		advice = source(path) + " it; name the driver's library, usually " + systemPath()
	}
	return fmt.Errorf("cuda: no CUDA driver: %s: %s: %w", reason, advice, device.ErrNotSupported)
}

// incomplete is the error for a library without a function that every device needs. A library
// without cuInit is no driver at all: libcudart, the runtime library, is often taken for it.
func incomplete(path, missing string, isDriver bool) error {
	if isDriver {
		return fmt.Errorf("cuda: %s has no %s: the driver is too old: update NVIDIA's driver: %w", path, missing, device.ErrNotSupported)
	}
	return fmt.Errorf("cuda: %s is not a CUDA driver, it has no %s: %s it; name the driver's library, usually %s: %w",
		path, missing, source(path), systemPath(), device.ErrNotSupported)
}

// source is the setting that a path comes from, with its verb.
func source(path string) string {
	if path == os.Getenv(PathVariable) {
		return "the environment variable " + PathVariable + " names"
	}
	return "WithDriver names"
}

// noDevice completes the error of a driver that finds no GPU.
func noDevice(err error) error {
	return fmt.Errorf("%w (%s)", err, Hidden())
}

// Hidden is the advice for a GPU that the driver does not have.
func Hidden() string {
	if visible, ok := os.LookupEnv(visibleVariable); ok {
		return fmt.Sprintf("%s=%q hides all other GPUs from this process", visibleVariable, visible)
	}
	return "nvidia-smi lists the GPUs of this machine; a container has those that it was started with"
}
