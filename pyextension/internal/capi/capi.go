//go:build cgo && unix

// Package capi is the C side of package pyextension: the module that Python imports, and what must be asked of Python itself.
package capi

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo !windows LDFLAGS: -ldl -pthread
// #cgo darwin LDFLAGS: -Wl,-undefined,dynamic_lookup
// #include <stdlib.h>
// #include <string.h>
// #include "capi.h"
// #include "gil.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Server answers what Python asks. Its methods are called on threads of Python, which do not hold
// the GIL. None of them panics.
type Server interface {
	// Call starts the call that the request asks for, and waits. It puts the reply and returns 0, or the number
	// of a call in progress. The request is valid until it returns.
	Call(request []byte, caller Caller, wait time.Duration, reply Reply) (number int64)
	// Wait waits for a call in progress; a negative wait has no limit.
	Wait(number int64, wait time.Duration, reply Reply) (still int64)
	Cancel(number int64)
	// Release drops an object.
	Release(handle uint64)
	// StreamReleased ends the token of UnlockStream or UnlockDeviceStream.
	StreamReleased(token uint64)
}

// Reply takes a copy of a reply.
type Reply interface{ Put([]byte) }

// Caller is who waits for a call.
type Caller struct {
	Thread uint64  // as pthread_self has it
	Main   bool    // it is the thread of Python that runs signal handlers
	Ended  uintptr // an object of Python, for CallPythonObjects once the call has ended, or 0: the thread waits
}

var server Server

// Serve sets the server. It is called once, from an init function.
func Serve(s Server) { server = s }

//export arrowdevice_go_call
func arrowdevice_go_call(request *C.uint8_t, size C.uint64_t, thread C.uint64_t, main C.int, wait C.int64_t, ended unsafe.Pointer, reply *C.struct_arrowdevice_reply) C.int64_t {
	data := unsafe.Slice((*byte)(request), int(size))
	return C.int64_t(server.Call(data, Caller{uint64(thread), main != 0, uintptr(ended)}, time.Duration(wait), (*memoryOfC)(reply)))
}

//export arrowdevice_go_wait
func arrowdevice_go_wait(call C.int64_t, wait C.int64_t, reply *C.struct_arrowdevice_reply) C.int64_t {
	return C.int64_t(server.Wait(int64(call), time.Duration(wait), (*memoryOfC)(reply)))
}

// memoryOfC is the memory for a reply.
type memoryOfC C.struct_arrowdevice_reply

func (r *memoryOfC) Put(data []byte) {
	if uint64(len(data)) > uint64(r.size) {
		r.data = (*C.uint8_t)(C.CBytes(data))
	} else {
		copy(unsafe.Slice((*byte)(r.data), len(data)), data)
	}
	r.size = C.uint64_t(len(data))
}

//export arrowdevice_go_cancel
func arrowdevice_go_cancel(call C.int64_t) { server.Cancel(int64(call)) }

//export arrowdevice_go_release
func arrowdevice_go_release(handle C.uint64_t) { server.Release(uint64(handle)) }

//export arrowdevice_go_stream_released
func arrowdevice_go_stream_released(token C.uint64_t) { server.StreamReleased(uint64(token)) }

var errNoMemory = fmt.Errorf("no memory for a C struct: %w", syscall.ENOMEM)

// Allocate returns zeroed memory of C for a struct.
func Allocate(size uintptr) (uintptr, error) {
	p := C.calloc(1, C.size_t(size))
	if p == nil {
		return 0, errNoMemory
	}
	return uintptr(p), nil
}

// Free frees memory of Allocate.
func Free(p uintptr) { C.free(abi.Pointer(p)) }

// Source is an iterable of Python, as a request names it. Its receiver owns it.
type Source uintptr

// Item is what a source returned: an encoded Arrow object, or why it failed. Neither is the end.
type Item struct {
	Encoded   []byte
	Failed    bool
	Code      syscall.Errno
	Text      string
	Exception uintptr // an object of Python, for a reply or DropPythonObject; 0 if C raises it
}

// Next reads the next item, with the GIL. What an item names is valid until the next call. running is the calling thread
// while code of the source runs, and else 0.
func (s Source) Next(running *atomic.Uint64) Item {
	var out C.struct_arrowdevice_item
	C.arrowdevice_source_next((*C.struct_arrowdevice_source)(abi.Pointer(uintptr(s))), (*C.uint64_t)(unsafe.Pointer(running)), &out)
	item := Item{Failed: out.failed != 0, Code: syscall.Errno(out.code), Exception: uintptr(out.exception)}
	if out.text != nil {
		item.Text = C.GoString(out.text)
		C.free(unsafe.Pointer(out.text))
	}
	if n := int(out.size); n > 0 {
		item.Encoded = C.GoBytes(unsafe.Pointer(&out.encoded[0]), C.int(n))
	}
	return item
}

// Release ends the source, with the GIL.
func (s Source) Release() {
	C.arrowdevice_source_release((*C.struct_arrowdevice_source)(abi.Pointer(uintptr(s))))
}

// UnlockStream makes the callbacks of the ArrowArrayStream at an address give up the GIL while Go
// runs. The server gets the token when the stream is released.
func UnlockStream(stream uintptr, token uint64) error {
	return noMemory(C.arrowdevice_unlock_stream(abi.Pointer(stream), C.uint64_t(token)))
}

// UnlockDeviceStream is UnlockStream for an ArrowDeviceArrayStream.
func UnlockDeviceStream(stream uintptr, token uint64) error {
	return noMemory(C.arrowdevice_unlock_device_stream(abi.Pointer(stream), C.uint64_t(token)))
}

func noMemory(code C.int) error {
	if code != 0 {
		return errNoMemory
	}
	return nil
}

// WithGIL runs f while the calling thread holds the GIL of Python's main interpreter, or without a lock if there is no Python. While
// Python is finalizing it does not run f, which leaks what f would release: the process is about to end.
func WithGIL(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var state C.struct_python_state
	if C.python_enter(&state) != 0 {
		defer C.python_leave(&state)
	} else if C.python_is_absent() == 0 {
		return
	}
	f()
}

// DropPythonObject drops a reference to the Python object at an address, with the GIL.
func DropPythonObject(object uintptr) { C.arrowdevice_drop_python_object(abi.Pointer(object)) }

// CallPythonObjects calls the Python objects at some addresses, with the GIL, and drops the references to them.
func CallPythonObjects(objects []uintptr) {
	C.arrowdevice_call_python_objects((*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(objects))), C.size_t(len(objects)))
}

// OnMainThread reports whether the calling thread is the one of Python that runs signal handlers.
func OnMainThread() bool { return C.arrowdevice_on_main_thread() != 0 }

// RunSignalHandlers runs the handlers of signals that have arrived, with the GIL, if the calling thread is Python's main
// one. It reports whether one raised an exception, which Python raises when the thread runs Python code again.
func RunSignalHandlers() bool { return C.arrowdevice_run_signal_handlers() != 0 }
