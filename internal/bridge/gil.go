package bridge

// #cgo !windows LDFLAGS: -ldl
// #include "bridge.h"
import "C"

import "runtime"

// WithGIL runs f while the calling thread holds Python's lock, if there is a Python in
// this process.
func WithGIL(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	state := C.cdevice_v0_gil_ensure()
	defer C.cdevice_v0_gil_release(state)
	f()
}
