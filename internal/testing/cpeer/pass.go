package cpeer

// #include "pass.h"
import "C"

import "unsafe"

// These fill a struct of C that is a Go variable, as programs with cgo do, and pass its address to C, which releases it. cgo panics if
// the struct holds a pointer to Go memory that is not pinned, or to pinned memory that holds such a pointer.

// PassSchema passes an ArrowSchema.
func PassSchema(fill func(at unsafe.Pointer)) {
	var s C.struct_ArrowSchema
	fill(unsafe.Pointer(&s))
	C.cpeer_pass_schema(&s)
}

// PassArray passes an ArrowArray.
func PassArray(fill func(at unsafe.Pointer)) {
	var a C.struct_ArrowArray
	fill(unsafe.Pointer(&a))
	C.cpeer_pass_array(&a)
}

// PassDeviceArray passes an ArrowDeviceArray.
func PassDeviceArray(fill func(at unsafe.Pointer)) {
	var a C.struct_ArrowDeviceArray
	fill(unsafe.Pointer(&a))
	C.cpeer_pass_device_array(&a)
}

// PassStream passes an ArrowArrayStream, which C reads to its end.
func PassStream(fill func(at unsafe.Pointer)) {
	var s C.struct_ArrowArrayStream
	fill(unsafe.Pointer(&s))
	C.cpeer_pass_stream(&s)
}

// PassDeviceStream passes an ArrowDeviceArrayStream, which C reads to its end.
func PassDeviceStream(fill func(at unsafe.Pointer)) {
	var s C.struct_ArrowDeviceArrayStream
	fill(unsafe.Pointer(&s))
	C.cpeer_pass_device_stream(&s)
}

// PassHandler passes an ArrowAsyncDeviceStreamHandler to a producer, which fails at once.
func PassHandler(fill func(at unsafe.Pointer)) {
	var h C.struct_ArrowAsyncDeviceStreamHandler
	fill(unsafe.Pointer(&h))
	C.cpeer_pass_handler(&h)
}
