// Package simulator tells the simulated driver from a driver. The library itself must not: a program
// that uses it holds nothing of the simulator.
package simulator

import "github.com/arrowdevice/arrowdevice/internal/cuda"

// Is reports whether library is the simulated driver.
func Is(library *cuda.Library) bool { return library.Has("cudasim_configure") }
