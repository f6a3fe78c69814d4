package cudasimtest

import (
	"testing"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

// driverVariable names the driver that memory/cudaalloc loads.
const driverVariable = "CDEVICE_CUDA_DRIVER"

// Start returns a simulated machine of t's own, and sets CDEVICE_CUDA_DRIVER to it until the test ends. A GPU that
// was opened by an earlier test is one of another machine: a program that keeps it in a variable opens it
// again. Because of the environment, the test and those above it cannot be parallel: see [WithParallel].
//
// When the test ends, after the functions that it registered with t.Cleanup later, Start lets the work that
// was queued run, and frees what waits for it. Then the test fails for each violation and each leak, and the machine
// is shut down: memory that is still allocated is gone.
//
// Start skips the test on systems other than Linux. On Linux, the test fails if the simulator cannot be
// built, because cgo is disabled or there is no C compiler.
//
// The methods of the machine make calls of the driver fail, keep it from working, and count calls.
func Start(t testing.TB, opts ...Option) *cudasim.Sim {
	t.Helper()
	o, err := apply(opts)
	if err != nil {
		t.Fatal(err)
	}
	sim := cudasim.Load(t, o.machine) // which looks for violations and leaks when the test ends
	if !o.parallel {
		t.Setenv(driverVariable, sim.Path())
	}
	t.Cleanup(func() {
		t.Helper()
		settle(t, sim)
	})
	return sim
}
