// Package bridge has all calls between Go and C of the Arrow interfaces: the callbacks of the
// structs that we export, and calls of the callbacks of foreign structs. Policy is left to the
// packages that use it.
package bridge

// #include "bridge.h"
import "C"

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// C addresses that exported structs hold.
var (
	ReleaseArray  = uintptr(C.cdevice_v0_release_array)
	ReleaseSchema = uintptr(C.cdevice_v0_release_schema)
	// Zeros is the address of 64 zero bytes, aligned to 64.
	Zeros = uintptr(unsafe.Pointer(&C.cdevice_v0_zeros))
)

// CallArrayRelease calls the release callback of a, which must not be released
// yet. The callback runs on this thread and may call back into Go.
func CallArrayRelease(a *abi.ArrowArray) {
	ordered()
	C.cdevice_v0_call_array_release((*C.uint64_t)(unsafe.Pointer(a)))
}

// ReleaseMoved is CallArrayRelease for a struct that was moved to *a. A callback gets a copy in memory of
// C: a callback that is written in Go may pass the struct to C, and cgo's checks would search the
// whole Go object that *a is a part of for Go pointers. *a is not marked released.
func ReleaseMoved(a *abi.ArrowArray) {
	ordered()
	C.cdevice_v0_release_moved((*C.uint64_t)(unsafe.Pointer(a)))
}

// CallSchemaRelease calls the release callback of s, which must not be released yet.
func CallSchemaRelease(s *abi.ArrowSchema) {
	C.cdevice_v0_call_schema_release((*C.uint64_t)(unsafe.Pointer(s)))
}
