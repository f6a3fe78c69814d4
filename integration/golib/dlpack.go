package main

// #include <stdint.h>
// #include "capsule.h"
import "C"

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// golib_export_dlpack makes a tensor of an array: a DLManagedTensorVersioned, or a DLManagedTensor. The
// stream is that of __dlpack__, unless isNone is set.
//
//export golib_export_dlpack
func golib_export_dlpack(handle C.uint64_t, versioned C.int, stream C.int64_t, isNone C.int, out *C.uint64_t) *C.char {
	return guard(func() error {
		a, err := arrayOf(handle)
		if err != nil {
			return err
		}
		var opts []dlpack.ExportOption
		if isNone == 0 {
			opts = append(opts, dlpack.WithStreamNumber(int64(stream)))
		}
		if versioned != 0 {
			t, err := dlpack.Export(a, opts...)
			*out = C.uint64_t(uintptr(unsafe.Pointer(t)))
			return err
		}
		t, err := dlpack.ExportLegacy(a, opts...)
		*out = C.uint64_t(uintptr(unsafe.Pointer(t)))
		return err
	})
}

// golib_import_dlpack takes the tensor at an address.
//
//export golib_import_dlpack
func golib_import_dlpack(address C.uintptr_t, versioned, withGIL C.int, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		opt := dlpack.WithImportOptions(importOptions(withGIL)...)
		if versioned != 0 {
			a, err := dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(uintptr(address)), opt)
			return anArray{a}, err
		}
		a, err := dlpack.ImportLegacy(dlpack.ManagedTensorFromPtr(uintptr(address)), opt)
		return anArray{a}, err
	})
}
