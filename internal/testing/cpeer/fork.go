//go:build cgo && unix

package cpeer

// #include "fork.h"
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Forked has the results of a forked child that used structs of Go's.
type Forked struct {
	ArrayReleased, StreamsReleased, Text, NothingFilled bool
	GetSchema, GetNext, PlainGetNext, ExtractData       syscall.Errno
}

// UseInFork forks this process and has the child use and release the structs, which stay as they are
// here. A child that hangs is ended after 20 seconds, and the error is ETIMEDOUT.
func UseInFork(array *abi.ArrowDeviceArray, stream *abi.ArrowDeviceArrayStream, plain *abi.ArrowArrayStream,
	producer Producers, task *abi.ArrowAsyncTask,
) (Forked, error) {
	var found C.struct_cpeer_forked
	code := C.cpeer_use_in_fork((*C.struct_ArrowDeviceArray)(unsafe.Pointer(array)), (*C.struct_ArrowDeviceArrayStream)(unsafe.Pointer(stream)),
		(*C.struct_ArrowArrayStream)(unsafe.Pointer(plain)), producer.p,
		(*C.struct_ArrowAsyncTask)(unsafe.Pointer(task)), 20, &found)
	if code != 0 {
		return Forked{}, syscall.Errno(code)
	}
	return Forked{
		ArrayReleased: found.array_released != 0, StreamsReleased: found.streams_released != 0, Text: found.text != 0,
		NothingFilled: found.nothing_filled != 0,
		GetSchema:     syscall.Errno(found.get_schema), GetNext: syscall.Errno(found.get_next),
		PlainGetNext: syscall.Errno(found.plain_get_next), ExtractData: syscall.Errno(found.extract_data),
	}, nil
}

// DeleteInFork calls the deleter of a DLManagedTensorVersioned in a child by fork, and returns an error
// unless the child ends by itself. The tensor of this process stays.
func DeleteInFork(tensor uintptr) error {
	return waited(C.cpeer_delete_in_fork((*C.DLManagedTensorVersioned)(abi.Pointer(tensor)), 20))
}
