package abi

// #include "abi.h"
import "C"

import (
	"unsafe"

	_ "github.com/arrowdevice/arrowdevice/cdevice/include" // go mod vendor copies its header, which abi.h includes
)

// Compile-time proof that every mirror has the layout that the C compiler gives
// the struct in arrow_device.h: a difference is an index out of range. The golden test in
// layout_test.go pins the numbers themselves.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(ArrowSchema{})-C.sizeof_struct_ArrowSchema]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowSchema{}.Flags)-unsafe.Offsetof(C.struct_ArrowSchema{}.flags)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowSchema{}.Release)-unsafe.Offsetof(C.struct_ArrowSchema{}.release)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowSchema{}.PrivateData)-unsafe.Offsetof(C.struct_ArrowSchema{}.private_data)]

	_ = [1]struct{}{}[unsafe.Sizeof(ArrowArray{})-C.sizeof_struct_ArrowArray]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArray{}.Buffers)-unsafe.Offsetof(C.struct_ArrowArray{}.buffers)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArray{}.Release)-unsafe.Offsetof(C.struct_ArrowArray{}.release)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArray{}.PrivateData)-unsafe.Offsetof(C.struct_ArrowArray{}.private_data)]

	_ = [1]struct{}{}[unsafe.Sizeof(ArrowArrayStream{})-C.sizeof_struct_ArrowArrayStream]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArrayStream{}.GetSchema)-unsafe.Offsetof(C.struct_ArrowArrayStream{}.get_schema)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArrayStream{}.GetNext)-unsafe.Offsetof(C.struct_ArrowArrayStream{}.get_next)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArrayStream{}.GetLastError)-unsafe.Offsetof(C.struct_ArrowArrayStream{}.get_last_error)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArrayStream{}.Release)-unsafe.Offsetof(C.struct_ArrowArrayStream{}.release)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowArrayStream{}.PrivateData)-unsafe.Offsetof(C.struct_ArrowArrayStream{}.private_data)]

	_ = [1]struct{}{}[unsafe.Sizeof(ArrowDeviceArray{})-C.sizeof_struct_ArrowDeviceArray]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowDeviceArray{}.DeviceID)-unsafe.Offsetof(C.struct_ArrowDeviceArray{}.device_id)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowDeviceArray{}.DeviceType)-unsafe.Offsetof(C.struct_ArrowDeviceArray{}.device_type)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowDeviceArray{}.SyncEvent)-unsafe.Offsetof(C.struct_ArrowDeviceArray{}.sync_event)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowDeviceArray{}.Reserved)-unsafe.Offsetof(C.struct_ArrowDeviceArray{}.reserved)]

	_ = [1]struct{}{}[unsafe.Sizeof(ArrowDeviceArrayStream{})-C.sizeof_struct_ArrowDeviceArrayStream]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowDeviceArrayStream{}.GetSchema)-unsafe.Offsetof(C.struct_ArrowDeviceArrayStream{}.get_schema)]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowDeviceArrayStream{}.PrivateData)-unsafe.Offsetof(C.struct_ArrowDeviceArrayStream{}.private_data)]

	_ = [1]struct{}{}[unsafe.Sizeof(ArrowAsyncTask{})-C.sizeof_struct_ArrowAsyncTask]
	_ = [1]struct{}{}[unsafe.Sizeof(ArrowAsyncProducer{})-C.sizeof_struct_ArrowAsyncProducer]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowAsyncProducer{}.PrivateData)-unsafe.Offsetof(C.struct_ArrowAsyncProducer{}.private_data)]
	_ = [1]struct{}{}[unsafe.Sizeof(ArrowAsyncDeviceStreamHandler{})-C.sizeof_struct_ArrowAsyncDeviceStreamHandler]
	_ = [1]struct{}{}[unsafe.Offsetof(ArrowAsyncDeviceStreamHandler{}.Producer)-unsafe.Offsetof(C.struct_ArrowAsyncDeviceStreamHandler{}.producer)]
)
