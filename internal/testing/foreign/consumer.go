package foreign

// #include <stdlib.h>
// #include <string.h>
// #include "foreign.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Way is a way in which a consumer releases an array.
type Way int

// The ways; see foreign.h.
const (
	Here          = Way(C.FOREIGN_HERE)
	Thread        = Way(C.FOREIGN_THREAD)
	Moved         = Way(C.FOREIGN_MOVED)
	Twice         = Way(C.FOREIGN_TWICE)
	ChildrenFirst = Way(C.FOREIGN_CHILDREN_FIRST)
	ChildrenLast  = Way(C.FOREIGN_CHILDREN_LAST)
	Threads       = Way(C.FOREIGN_THREADS)
	Ways          = int(C.FOREIGN_WAYS)
)

// Release releases an array in one of the ways. The struct may be in Go memory.
func Release(a *cdata.CArrowArray, way Way) error {
	if errno := C.foreign_release((*C.struct_ArrowArray)(unsafe.Pointer(a)), C.int(way)); errno != 0 {
		return fmt.Errorf("foreign: %w", syscall.Errno(errno))
	}
	return nil
}

// ArrayOf is the ArrowArray in a device array.
func ArrayOf(a *cdevice.CArrowDeviceArray) *cdata.CArrowArray {
	return (*cdata.CArrowArray)(unsafe.Pointer(a))
}

// Released reports whether a struct is marked released.
func Released(a *cdata.CArrowArray) bool {
	return (*C.struct_ArrowArray)(unsafe.Pointer(a)).release == nil
}

// Event returns the handle that sync_event points to, or 0. C is given the pointer, as a program gives it to its driver.
func Event(a *cdevice.CArrowDeviceArray) uintptr {
	return uintptr(C.foreign_event((*C.struct_ArrowDeviceArray)(unsafe.Pointer(a)).sync_event))
}

// DeviceOf returns the device that the struct names.
func DeviceOf(a *cdevice.CArrowDeviceArray) device.ID {
	c := (*C.struct_ArrowDeviceArray)(unsafe.Pointer(a))
	return device.ID{Type: device.Type(c.device_type), Ordinal: int64(c.device_id)}
}

// NewDeviceArray, NewArray and NewSchema return structs in C memory, filled with garbage; Forget frees them.
func NewDeviceArray() *cdevice.CArrowDeviceArray {
	return (*cdevice.CArrowDeviceArray)(garbage(C.sizeof_struct_ArrowDeviceArray))
}

// NewArray returns an ArrowArray.
func NewArray() *cdata.CArrowArray { return (*cdata.CArrowArray)(garbage(C.sizeof_struct_ArrowArray)) }

// NewSchema returns an ArrowSchema.
func NewSchema() *cdata.CArrowSchema {
	return (*cdata.CArrowSchema)(garbage(C.sizeof_struct_ArrowSchema))
}

func garbage(size C.size_t) unsafe.Pointer {
	m := C.malloc(size)
	C.memset(m, 0xa5, size)
	return m
}

// Forget frees the memory of a struct of NewDeviceArray, NewArray, NewSchema and their like.
func Forget[S cdevice.CStruct](s *S) { C.free(unsafe.Pointer(s)) }

// TakePart moves the array at a path of children below a struct into *out. A dictionary is child 0 of its array.
func TakePart(root *cdata.CArrowArray, path []int, out *cdata.CArrowArray) {
	steps := make([]C.int64_t, len(path))
	for i, child := range path {
		steps[i] = C.int64_t(child)
	}
	C.foreign_take_part((*C.struct_ArrowArray)(unsafe.Pointer(root)), unsafe.SliceData(steps), C.int64_t(len(steps)), (*C.struct_ArrowArray)(unsafe.Pointer(out)))
}

// TakePartOfDevice is TakePart with the device and the event of the root.
func TakePartOfDevice(root *cdevice.CArrowDeviceArray, path []int, out *cdevice.CArrowDeviceArray) {
	*out = *root
	TakePart(ArrayOf(root), path, ArrayOf(out))
}

// Number returns the first value of the first column, an int64, which C reads.
func Number(a *cdata.CArrowArray) int64 {
	return int64(C.foreign_number((*C.struct_ArrowArray)(unsafe.Pointer(a))))
}

// CountsNulls reports whether an array and those below it have null counts.
func CountsNulls(a *cdata.CArrowArray) bool {
	return countsNulls((*C.struct_ArrowArray)(unsafe.Pointer(a)))
}

func countsNulls(a *C.struct_ArrowArray) bool {
	if a.null_count < 0 || a.dictionary != nil && !countsNulls(a.dictionary) {
		return false
	}
	for _, child := range unsafe.Slice(a.children, a.n_children) {
		if !countsNulls(child) {
			return false
		}
	}
	return true
}
