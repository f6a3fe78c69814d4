//go:build cgo && linux

package main

import (
	"os"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// simulated is the GPU of the simulated driver.
type simulated struct {
	gpu *cudaalloc.Device
	sim *cudasim.Sim
}

// newSimulated returns a GPU that does its work within the calls that wait for it: on threads of its own, it would do it at
// another time in each run.
func newSimulated(driver string) *simulated {
	check(os.Setenv("CUDASIM", cudasim.Options{Lazy: true}.String()))
	gpu := must(cudaalloc.Open(0, cudaalloc.WithDriver(driver)))
	return &simulated{gpu, must(cudasim.Open(driver))}
}

// calls returns how often the driver was called and how often that may have waited.
func (s *simulated) calls() (all, synchronisations int64) {
	report := s.sim.Report()
	for _, n := range report.Calls {
		all += int64(n)
	}
	return all, int64(report.Synchronisations)
}
