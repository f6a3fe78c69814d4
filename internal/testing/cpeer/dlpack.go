package cpeer

// #include <stdlib.h>
// #include "dlpack.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Tensor is a DLPack tensor that a C producer made, in both forms, whose deleters count.
type Tensor struct{ c *C.struct_cpeer_tensor }

// TensorFields are the fields of a Tensor.
type TensorFields struct {
	Data           uintptr
	DeviceType, ID int32
	Code, Bits     uint8
	Lanes          uint16
	Shape, Strides []int64 // without strides, they are NULL
	ByteOffset     uint64
	Major          uint32 // 0: 1
	Flags          uint64
	NoDeleter      bool
	NDim           int32 // unless it is 0, another number than len(Shape)
	WithoutShape   bool  // NULL
}

// NewTensor returns a tensor. Free it.
func NewTensor(f TensorFields) Tensor {
	c := C.cpeer_tensor_new()
	t := &c.legacy.dl_tensor
	*(*uintptr)(unsafe.Pointer(&t.data)) = f.Data
	t.device = C.DLDevice{device_type: C.int32_t(f.DeviceType), device_id: C.int32_t(f.ID)}
	t.dtype = C.DLDataType{code: C.uint8_t(f.Code), bits: C.uint8_t(f.Bits), lanes: C.uint16_t(f.Lanes)}
	t.byte_offset = C.uint64_t(f.ByteOffset)
	t.ndim = C.int32_t(len(f.Shape))
	if f.NDim != 0 {
		t.ndim = C.int32_t(f.NDim)
	}
	if !f.WithoutShape {
		t.shape = &c.shape[0]
		copy(unsafe.Slice((*int64)(&c.shape[0]), len(c.shape)), f.Shape)
	}
	if f.Strides != nil {
		t.strides = &c.strides[0]
		copy(unsafe.Slice((*int64)(&c.strides[0]), len(c.strides)), f.Strides)
	}
	c.versioned.dl_tensor = *t
	c.versioned.flags = C.uint64_t(f.Flags)
	if f.Major != 0 {
		c.versioned.version.major = C.uint32_t(f.Major)
	}
	if f.NoDeleter {
		c.legacy.deleter, c.versioned.deleter = nil, nil
	}
	return Tensor{c}
}

// Legacy returns the address of the DLManagedTensor.
func (t Tensor) Legacy() uintptr { return uintptr(unsafe.Pointer(&t.c.legacy)) }

// Versioned returns the address of the DLManagedTensorVersioned.
func (t Tensor) Versioned() uintptr { return uintptr(unsafe.Pointer(&t.c.versioned)) }

// Deleted returns how often a deleter was called. It panics if one was called for another tensor.
func (t Tensor) Deleted() int {
	if t.c.foreign != 0 {
		panic("cpeer: a deleter was called with another tensor")
	}
	return int(t.c.deleted)
}

// Free frees the structs.
func (t Tensor) Free() { C.free(unsafe.Pointer(t.c)) }

// TensorSum returns the sum of the elements of the DLTensor at an address, in CPU memory, as a C
// consumer reads it: by its shape, strides and byte_offset. The elements are int32, int64 or float32.
func TensorSum(tensor uintptr) float64 {
	return float64(C.cpeer_tensor_sum((*C.DLTensor)(abi.Pointer(tensor))))
}

// DeleteOnThread calls the deleter of a DLPack tensor on a new C thread and waits for it.
func DeleteOnThread(tensor uintptr, versioned bool) error {
	var errno C.int
	if versioned {
		errno = C.cpeer_delete_versioned_on_thread((*C.DLManagedTensorVersioned)(abi.Pointer(tensor)))
	} else {
		errno = C.cpeer_delete_on_thread((*C.DLManagedTensor)(abi.Pointer(tensor)))
	}
	if errno != 0 {
		return fmt.Errorf("cpeer: start a thread: %w", syscall.Errno(errno))
	}
	return nil
}
