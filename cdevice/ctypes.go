//go:build cgo

package cdevice

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// CArrowDeviceArray is struct ArrowDeviceArray of the C device data interface.
// It holds C addresses as integers, so it may live in Go memory, be filled
// without being zeroed first, and be passed to C. A C pointer becomes one with
// [DeviceArrayFromPtr].
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowdevicearray-structure
type CArrowDeviceArray = abi.ArrowDeviceArray

// DeviceArrayFromPtr returns the struct ArrowDeviceArray at an address, as other
// languages pass it: PyArrow's _export_to_c_device, say. It borrows the struct.
func DeviceArrayFromPtr(ptr uintptr) *CArrowDeviceArray { return abi.At[CArrowDeviceArray](ptr) }

// SchemaFromPtr returns the struct ArrowSchema at an address. It borrows the
// struct, and is cdata.SchemaFromPtr under a name that is found here.
func SchemaFromPtr(ptr uintptr) *cdata.CArrowSchema { return abi.At[cdata.CArrowSchema](ptr) }

// ReleaseCArrowDeviceArray calls the release callback of a struct that nobody
// imported. A nil or released struct is left alone.
func ReleaseCArrowDeviceArray(arr *CArrowDeviceArray) {
	if arr != nil {
		releaseArray(&arr.Array)
	}
}

// ReleaseCArrowSchema calls the release callback of a schema that nobody
// imported. A nil or released schema is left alone.
func ReleaseCArrowSchema(schema *cdata.CArrowSchema) {
	if s := schemaMirror(schema); s != nil && s.Release != 0 {
		bridge.CallSchemaRelease(s)
	}
}

func releaseArray(a *abi.ArrowArray) {
	if a.Release != 0 {
		bridge.CallArrayRelease(a)
	}
}

// schemaMirror sees cdata's C struct through our mirror of the same struct.
func schemaMirror(s *cdata.CArrowSchema) *abi.ArrowSchema {
	return (*abi.ArrowSchema)(unsafe.Pointer(s))
}
