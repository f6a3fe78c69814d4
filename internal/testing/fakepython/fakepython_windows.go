// Package fakepython is Python's lock for tests on Windows, where no Python runs that has a library of Go.
package fakepython

// #include "fakepython.h"
import "C"

// Held returns how often the lock is held.
func Held() int { return int(C.fakepython_held) }

// SetFinalizing sets the result of Py_IsFinalizing.
func SetFinalizing(is bool) {
	C.fakepython_finalizing = 0
	if is {
		C.fakepython_finalizing = 1
	}
}
