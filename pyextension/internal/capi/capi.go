//go:build cgo && unix

// Package capi is the C side of package pyextension: the functions that the Python package arrowdevice
// calls, the destructor of capsules, and what must be asked of Python itself.
package capi

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo !windows LDFLAGS: -ldl -pthread
// #include <stdlib.h>
// #include "capi.h"
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Server answers what Python asks. Its methods are called on threads of Python, which do not hold
// the GIL. None of them panics.
type Server interface {
	// Call starts the call that the request asks for, and waits. It returns a reply, or the number
	// of a call in progress. The request is valid until it returns.
	Call(request []byte, wait time.Duration) (number int64, reply []byte)
	// Wait waits for a call in progress; a negative wait has no limit.
	Wait(number int64, wait time.Duration) (still int64, reply []byte)
	Cancel(number int64)
	Notify(number int64, fd int)
	// Release drops an object.
	Release(handle uint64)
	// StreamReleased ends the token of UnlockStream or UnlockDeviceStream.
	StreamReleased(token uint64)
}

var server Server

// Serve sets the server. It is called once, from an init function.
func Serve(s Server) { server = s }

//export arrowdevice_go_call
func arrowdevice_go_call(request *C.uint8_t, size C.uint64_t, wait C.int64_t, reply **C.uint8_t, replySize *C.uint64_t) C.int64_t {
	number, answer := server.Call(unsafe.Slice((*byte)(request), int(size)), time.Duration(wait))
	return put(number, answer, reply, replySize)
}

//export arrowdevice_go_wait
func arrowdevice_go_wait(call C.int64_t, wait C.int64_t, reply **C.uint8_t, replySize *C.uint64_t) C.int64_t {
	number, answer := server.Wait(int64(call), time.Duration(wait))
	return put(number, answer, reply, replySize)
}

// put copies a reply to memory of C, or writes the number of a call in progress.
func put(number int64, answer []byte, reply **C.uint8_t, size *C.uint64_t) C.int64_t {
	if number == 0 {
		*reply, *size = (*C.uint8_t)(C.CBytes(answer)), C.uint64_t(len(answer))
	} else {
		*reply, *size = nil, C.uint64_t(number)
	}
	return C.int64_t(number)
}

//export arrowdevice_go_cancel
func arrowdevice_go_cancel(call C.int64_t) { server.Cancel(int64(call)) }

//export arrowdevice_go_notify
func arrowdevice_go_notify(call C.int64_t, fd C.int32_t) { server.Notify(int64(call), int(fd)) }

//export arrowdevice_go_release
func arrowdevice_go_release(handle C.uint64_t) { server.Release(uint64(handle)) }

//export arrowdevice_go_stream_released
func arrowdevice_go_stream_released(token C.uint64_t) { server.StreamReleased(uint64(token)) }

// ErrConsumed says that a C struct has no release callback: a consumer took its contents.
var ErrConsumed = errors.New("it was consumed or released before")

var errNoMemory = errors.New("out of memory")

// Move moves the C struct at an address into memory of C, which the caller frees. releaseAt is the
// offset of its release callback.
func Move(from, size, releaseAt uintptr) (uintptr, error) {
	var consumed C.int
	moved := C.arrowdevice_move(abi.Pointer(from), C.size_t(size), C.size_t(releaseAt), &consumed)
	switch {
	case consumed != 0:
		return 0, ErrConsumed
	case moved == nil:
		return 0, errNoMemory
	}
	return uintptr(moved), nil
}

// Allocate returns zeroed memory of C for a struct.
func Allocate(size uintptr) (uintptr, error) {
	p := C.calloc(1, C.size_t(size))
	if p == nil {
		return 0, errNoMemory
	}
	return uintptr(p), nil
}

// Free frees memory of Allocate or Move.
func Free(p uintptr) { C.free(abi.Pointer(p)) }

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

// DropPythonObject drops a reference to the Python object at an address, with the GIL.
func DropPythonObject(object uintptr) { C.arrowdevice_drop_python_object(abi.Pointer(object)) }

// SetMainThread names the thread of Python that runs signal handlers, by its pthread_self.
func SetMainThread(thread uint64) { C.arrowdevice_set_main_thread(C.uint64_t(thread)) }

// OnMainThread reports whether the calling thread is the one of SetMainThread.
func OnMainThread() bool { return C.arrowdevice_on_main_thread() != 0 }

// RunSignalHandlers runs the handlers of signals that have arrived, with the GIL, if the calling thread is Python's main
// one. It reports whether one raised an exception, which Python raises when the thread runs Python code again.
func RunSignalHandlers() bool { return C.arrowdevice_run_signal_handlers() != 0 }
