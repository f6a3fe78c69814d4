package bridge

// #include "dlpack.h"
import "C"

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// DLExport mirrors struct cdevice_v0_dl_export, the head of the block of a DLPack tensor that we
// export. The tensor's manager_ctx is the address of the block.
type DLExport struct {
	Block
	Array abi.ArrowArray // the exported array, which the deleter releases
}

// DLImport mirrors struct cdevice_v0_dl_import, the head of the block of an array that we make of a
// DLPack tensor. The array's private_data is the address of the block.
type DLImport struct {
	Block
	Tensor    uintptr // in C memory
	Versioned uint64  // 1: a DLManagedTensorVersioned, 0: a DLManagedTensor
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(DLExport{})-C.sizeof_struct_cdevice_v0_dl_export]
	_ = [1]struct{}{}[unsafe.Sizeof(DLImport{})-C.sizeof_struct_cdevice_v0_dl_import]
)

// C addresses that the structs of DLPack tensors and of arrays made of them hold.
var (
	DLDelete          = uintptr(C.cdevice_v0_dl_delete)           // of a DLManagedTensor in a DLExport
	DLDeleteVersioned = uintptr(C.cdevice_v0_dl_delete_versioned) // of a DLManagedTensorVersioned in one
	DLRelease         = uintptr(C.cdevice_v0_dl_release)          // of the array of a DLImport: it calls the deleter
	DLReleaseChild    = uintptr(C.cdevice_v0_dl_release_child)    // of the arrays below it
)

// NewDLExport allocates a block for a DLPack tensor, with size bytes after its head. It returns nil
// if there is no memory. The deleter frees the block.
func NewDLExport(size uintptr) *DLExport {
	block := (*DLExport)(unsafe.Pointer(NewBlock(unsafe.Sizeof(DLExport{}) + size)))
	if block != nil {
		block.Live = 1
	}
	return block
}

// NewDLImport allocates a block for the array of a DLPack tensor, with size bytes after its head. It
// returns nil if there is no memory. The release callback DLRelease frees the block.
func NewDLImport(tensor uintptr, versioned bool, size uintptr) *DLImport {
	block := (*DLImport)(unsafe.Pointer(NewBlock(unsafe.Sizeof(DLImport{}) + size)))
	if block == nil {
		return nil
	}
	block.Live, block.Tensor, block.Versioned = 1, tensor, 0
	if versioned {
		block.Versioned = 1
	}
	return block
}

// CallDLDeleter calls the deleter of a DLPack tensor in C memory, unless it is NULL. The deleter
// runs on this thread and may call back into Go.
func CallDLDeleter(tensor uintptr, versioned bool) {
	var form C.uint64_t
	if versioned {
		form = 1
	}
	C.cdevice_v0_dl_call_deleter((*C.uint64_t)(abi.Pointer(tensor)), form)
}
