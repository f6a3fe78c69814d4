package cpeer

// #include "callback.h"
import "C"

import (
	"fmt"
	"runtime/cgo"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

//export cpeer_go_call
func cpeer_go_call(function C.uintptr_t) { cgo.Handle(function).Value().(func())() }

// CallBack calls f in a callback from C, on this thread.
func CallBack(f func()) {
	h := cgo.NewHandle(f)
	defer h.Delete()
	C.cpeer_call_back(C.uintptr_t(h))
}

// CallAndDrain calls f in a callback from C, and then, with no Go code in between, reads the stream that f has exported as
// [Drain] does, on this thread.
func CallAndDrain(f func(), stream *abi.ArrowArrayStream) Drained {
	h := cgo.NewHandle(f)
	defer h.Delete()
	var d C.struct_cpeer_drained
	C.cpeer_call_and_drain(C.uintptr_t(h), (*C.struct_ArrowArrayStream)(unsafe.Pointer(stream)), &d)
	return drained(&d)
}

// CallAndDrainOnThread is CallAndDrain on a thread that Go has never seen.
func CallAndDrainOnThread(f func(), stream *abi.ArrowArrayStream) Drained {
	h := cgo.NewHandle(f)
	defer h.Delete()
	var d C.struct_cpeer_drained
	if errno := C.cpeer_call_and_drain_on_thread(C.uintptr_t(h), (*C.struct_ArrowArrayStream)(unsafe.Pointer(stream)), &d); errno != 0 {
		panic(fmt.Sprintf("cpeer: start a thread: %v", syscall.Errno(errno)))
	}
	return drained(&d)
}
