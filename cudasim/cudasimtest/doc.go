// Package cudasimtest tests programs that use GPUs, on machines without one. [Start] gives a test
// a simulated machine, which the tested code finds as it finds a real driver:
//
//	func TestLoad(t *testing.T) {
//		cudasimtest.Start(t)
//		gpu, err := cudaalloc.Open(0) // or device.Open, or the code under test does so
//		...
//	}
//
// It is to CUDA what the race detector is to goroutines: when the test ends, it fails on each access
// that is not ordered after a conflicting one, in each schedule, even if the bytes came
// out right, with the lines of both; on work that touches freed memory; and on device memory, page-locked
// memory, streams and events that were not released, with the lines that made them. What memory/cudaalloc keeps for later is no
// leak. docs/cuda.md lists what each mistake says, and cudasim/README.md what is found and what is not.
//
// The simulator has no kernels: copies and fills (Device.Copy, Device.Memset) stand in for them. Accesses
// of page-locked and managed memory by the host are not calls, so a test declares those that matter, with
// [cudasim.Sim.HostRead] and [cudasim.Sim.HostWrite].
//
// Package cdevicetest finds batches and readers that were not released, those in memory of the host among them:
//
//	cdevicetest.CheckLeaks(t) // first: it looks after the machine has ended
//	cudasimtest.Start(t)
//
// The simulator needs Linux, cgo and a C compiler, which compiles it once. On other systems Start skips
// the test.
package cudasimtest

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

// Option configures [Start].
type Option func(*options)

type options struct {
	machine  cudasim.Options
	parallel bool
}

// WithOptions describes the machine. Without it, that is one GPU that does its work at once, in the order of each
// stream:
//
//	cudasimtest.Start(t, cudasimtest.WithOptions(cudasim.Options{Devices: 2, Lazy: true}))
//
// Start sets Stacks, so that failures name lines of the program.
func WithOptions(machine cudasim.Options) Option {
	return func(o *options) { o.machine = machine }
}

// WithParallel leaves the environment as it is, so that the test may be parallel to others. The tested code
// then has to open the GPU of the machine by its path, and not by device.Open:
//
//	sim := cudasimtest.Start(t, cudasimtest.WithParallel())
//	gpu, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
func WithParallel() Option {
	return func(o *options) { o.parallel = true }
}

func apply(opts []Option) (o options, err error) {
	for i, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("cudasimtest: option %d is nil", i)
		}
		opt(&o)
	}
	o.machine.Stacks = true
	return o, nil
}
