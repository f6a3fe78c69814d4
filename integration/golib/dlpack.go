//go:build cgo

package main

import (
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("import_dlpack", importDLPack, pyextension.WithParams("tensor", "versioned", "with_gil"))
}

// importDLPack takes the tensor at an address: a DLManagedTensorVersioned, or a DLManagedTensor.
func importDLPack(tensor uint64, versioned, withGIL bool) (*cdevice.Array, error) {
	opt := dlpack.WithImportOptions(importOptions(withGIL)...)
	if versioned {
		return dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(uintptr(tensor)), opt)
	}
	return dlpack.ImportLegacy(dlpack.ManagedTensorFromPtr(uintptr(tensor)), opt)
}
