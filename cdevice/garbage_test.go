package cdevice_test

import (
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// The caller's structs may hold anything before an export.
func garbageArray() *cdevice.CArrowDeviceArray {
	out := new(cdevice.CArrowDeviceArray)
	out.Array.Buffers, out.Array.Children, out.Array.Dictionary, out.Array.Release = 0xdead, 0xdead, 0xdead, 0xdead
	out.DeviceID, out.DeviceType, out.SyncEvent, out.Reserved = 77, 77, 0xdead, [3]int64{1, 2, 3}
	return out
}

// garbageSchema is a consumer's ArrowSchema before an export.
func garbageSchema() *cdata.CArrowSchema { return new(cdata.CArrowSchema) }

// garbagePlain is a consumer's struct, which may hold anything before an export.
func garbagePlain() *cdata.CArrowArray {
	const g = 0xdeadbeef
	a := &abi.ArrowArray{Length: -7, NullCount: -7, Offset: -7, NBuffers: -7, NChildren: -7, Buffers: g, Children: g, Dictionary: g, Release: g, PrivateData: g}
	return cdevice.ArrayFromPtr(addressOf(a))
}

// garbageStream is a consumer's ArrowDeviceArrayStream before an export.
func garbageStream() *cdevice.CArrowDeviceArrayStream {
	const g = 0xdeadbeef
	return &cdevice.CArrowDeviceArrayStream{DeviceType: -7, GetSchema: g, GetNext: g, GetLastError: g, Release: g, PrivateData: g}
}

// garbagePlainStream is a consumer's ArrowArrayStream before an export.
func garbagePlainStream() *cdata.CArrowArrayStream {
	const g = 0xdeadbeef
	s := &abi.ArrowArrayStream{GetSchema: g, GetNext: g, GetLastError: g, Release: g, PrivateData: g}
	return cdevice.ArrayStreamFromPtr(addressOf(s))
}
