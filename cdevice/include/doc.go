// Package include carries arrow_device.h, the C definitions of the structs that package
// cdevice exchanges: struct ArrowSchema, ArrowArray, ArrowArrayStream, ArrowDeviceArray,
// ArrowDeviceArrayStream, ArrowAsyncTask, ArrowAsyncProducer and
// ArrowAsyncDeviceStreamHandler. There is no Go code in it.
//
// A program with cgo code of its own includes the header:
//
//	// #include <arrow_device.h>
//	import "C"
//
// and is built with the path of this folder, which command cflags prints, be it in the module cache
// or where a replace directive points, before the flags that CGO_CFLAGS has:
//
//	export CGO_CFLAGS="$(go run github.com/arrowdevice/arrowdevice/cdevice/include/cflags)"
//
// GOOS is set afterwards, as the command runs on this system. In a module that vendors its
// dependencies, which has no command that it does not import, go list knows the path:
//
//	export CGO_CFLAGS="-O2 -g '-I$(go list -f '{{.Dir}}' github.com/arrowdevice/arrowdevice/cdevice/include)'"
//
// A library, whose users should not have to set CGO_CFLAGS, copies the header into its
// own package: the guards let both copies be included in one file.
//
// The pointer to a struct of C is converted:
//
//	var array C.struct_ArrowDeviceArray
//	var schema C.struct_ArrowSchema
//	err := cdevice.ExportRecordBatch(batch,
//		(*cdevice.CArrowDeviceArray)(unsafe.Pointer(&array)),
//		(*cdata.CArrowSchema)(unsafe.Pointer(&schema)))
//
// DeviceArrayFromPtr and its siblings are for addresses that C or another language has passed as numbers. A Go variable
// whose address is a number is on a stack that may move.
package include
