package bridge

// #cgo !windows LDFLAGS: -ldl
// #include "bridge.h"
import "C"

import "runtime"

// WithGIL runs f while the calling thread holds Python's lock, if there is a Python in
// this process. While Python is finalizing it does not run f, which leaks what f would release: the
// process is about to end.
func WithGIL(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var state C.int
	if C.cdevice_v0_gil_ensure(&state) != 0 {
		return
	}
	defer C.cdevice_v0_gil_release(state)
	f()
}
