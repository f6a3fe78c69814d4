package cudaalloc

import (
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
)

// Option configures [Open], [Devices] and [DriverVersion].
type Option func(*options)

type options struct{ driver string }

// WithDriver loads the driver from path instead of libcuda.so.1 (nvcuda.dll on
// Windows) or the path in the environment variable CDEVICE_CUDA_DRIVER. Devices
// of different drivers are different devices; device.Open knows those of the
// default driver.
func WithDriver(path string) Option {
	return func(o *options) { o.driver = path }
}

func openPlatform(call string, opts []Option) (*gpu.Platform, error) {
	var o options
	if err := argument.Options("cuda: "+call, opts); err != nil {
		return nil, err
	}
	for _, opt := range opts {
		opt(&o)
	}
	return gpu.OpenPlatform(o.driver)
}
