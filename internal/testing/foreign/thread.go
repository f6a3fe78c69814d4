package foreign

// #include "thread.h"
import "C"

import (
	"fmt"
	"runtime/cgo"
	"syscall"
)

//export foreign_go_call
func foreign_go_call(function C.uintptr_t) { cgo.Handle(function).Value().(func())() }

// CallOnThread calls f on a thread that C has made, and returns when it has returned.
func CallOnThread(f func()) {
	h := cgo.NewHandle(f)
	defer h.Delete()
	if errno := C.foreign_call_on_thread(C.uintptr_t(h)); errno != 0 {
		panic(fmt.Sprintf("foreign: start a thread: %v", syscall.Errno(errno)))
	}
}
