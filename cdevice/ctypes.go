//go:build cgo

package cdevice

import (
	clayout "structs" // HostLayout: the fields lie as in C
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// CArrowDeviceArray is struct ArrowDeviceArray of the C device data interface.
// It holds C addresses as integers, so it may live in Go memory, be filled
// without being zeroed first, and be passed to C. [DeviceArrayFromPtr] converts a C pointer.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowdevicearray-structure
type CArrowDeviceArray struct {
	_ clayout.HostLayout

	// Array is the struct ArrowArray that describes the buffers.
	Array struct {
		_           clayout.HostLayout
		Length      int64   // elements
		NullCount   int64   // null elements; -1 if they were not counted
		Offset      int64   // elements of the buffers before the first one
		NBuffers    int64   // pointers in Buffers
		NChildren   int64   // pointers in Children
		Buffers     uintptr // const void**: addresses on the device
		Children    uintptr // struct ArrowArray**
		Dictionary  uintptr // struct ArrowArray*, or NULL
		Release     uintptr // void (*)(struct ArrowArray*); NULL once the struct is released or moved
		PrivateData uintptr // void* of the producer
	}
	DeviceID   int64    // number of the device; -1 for the CPU
	DeviceType int32    // an ArrowDeviceType: the value of a device.Type
	SyncEvent  uintptr  // address of an event of the device after which the buffers may be read, or NULL
	Reserved   [3]int64 // zero
}

// CArrowDeviceArrayStream is struct ArrowDeviceArrayStream of the C device stream
// interface. Like [CArrowDeviceArray], it may live in Go memory and be filled without being
// zeroed first; [DeviceArrayFromPtr] converts a C pointer.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
type CArrowDeviceArrayStream struct {
	_            clayout.HostLayout
	DeviceType   int32   // an ArrowDeviceType, that of all arrays of the stream
	GetSchema    uintptr // int (*)(struct ArrowDeviceArrayStream*, struct ArrowSchema*)
	GetNext      uintptr // int (*)(struct ArrowDeviceArrayStream*, struct ArrowDeviceArray*)
	GetLastError uintptr // const char* (*)(struct ArrowDeviceArrayStream*)
	Release      uintptr // void (*)(struct ArrowDeviceArrayStream*); NULL once the stream is released or moved
	PrivateData  uintptr // void* of the producer
}

// CArrowAsyncDeviceStreamHandler is struct ArrowAsyncDeviceStreamHandler of the
// asynchronous device stream interface. Like [CArrowDeviceArray], it may live in Go memory
// and be filled without being zeroed first; [DeviceArrayFromPtr] converts a C pointer.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#async-device-stream-interface
type CArrowAsyncDeviceStreamHandler struct {
	_           clayout.HostLayout
	OnSchema    uintptr // int (*)(struct ArrowAsyncDeviceStreamHandler*, struct ArrowSchema*)
	OnNextTask  uintptr // int (*)(struct ArrowAsyncDeviceStreamHandler*, struct ArrowAsyncTask*, const char* metadata)
	OnError     uintptr // void (*)(struct ArrowAsyncDeviceStreamHandler*, int code, const char* message, const char* metadata)
	Release     uintptr // void (*)(struct ArrowAsyncDeviceStreamHandler*); NULL once the handler is released
	Producer    uintptr // struct ArrowAsyncProducer*, which the producer sets before on_schema
	PrivateData uintptr // void* of the consumer
}

// ArrayStruct is a C struct of an array: ArrowDeviceArray of the C device data interface, or ArrowArray
// of the C data interface. An ArrowArray has no device and no event: its memory is the CPU's, and ready.
type ArrayStruct interface {
	CArrowDeviceArray | cdata.CArrowArray
}

// StreamStruct is a C struct of a stream: ArrowDeviceArrayStream of the C device stream interface, or
// ArrowArrayStream of the C stream interface, whose arrays are each an ArrowArray.
type StreamStruct interface {
	CArrowDeviceArrayStream | cdata.CArrowArrayStream
}

// CStruct is any struct of the C interfaces that a program gets from other libraries or gives them.
type CStruct interface {
	ArrayStruct | StreamStruct | cdata.CArrowSchema | CArrowAsyncDeviceStreamHandler
}

// DeviceArrayFromPtr returns the struct ArrowDeviceArray at an address, as other languages pass it:
// PyArrow's _export_to_c_device, or a capsule of __arrow_c_device_array__. It borrows the struct. The
// address is not that of a Go variable, which may move: convert its pointer.
func DeviceArrayFromPtr(ptr uintptr) *CArrowDeviceArray { return abi.At[CArrowDeviceArray](ptr) }

// DeviceArrayStreamFromPtr returns the struct ArrowDeviceArrayStream at an address. It borrows the struct.
func DeviceArrayStreamFromPtr(ptr uintptr) *CArrowDeviceArrayStream {
	return abi.At[CArrowDeviceArrayStream](ptr)
}

// AsyncDeviceStreamHandlerFromPtr returns the struct ArrowAsyncDeviceStreamHandler at an address. It
// borrows the struct.
func AsyncDeviceStreamHandlerFromPtr(ptr uintptr) *CArrowAsyncDeviceStreamHandler {
	return abi.At[CArrowAsyncDeviceStreamHandler](ptr)
}

// ArrayFromPtr returns the struct ArrowArray at an address: PyArrow's _export_to_c, or a capsule of
// __arrow_c_array__. It borrows the struct.
func ArrayFromPtr(ptr uintptr) *cdata.CArrowArray { return abi.At[cdata.CArrowArray](ptr) }

// ArrayStreamFromPtr returns the struct ArrowArrayStream at an address. It borrows the struct.
func ArrayStreamFromPtr(ptr uintptr) *cdata.CArrowArrayStream {
	return abi.At[cdata.CArrowArrayStream](ptr)
}

// SchemaFromPtr returns the struct ArrowSchema at an address. It borrows the struct.
func SchemaFromPtr(ptr uintptr) *cdata.CArrowSchema { return abi.At[cdata.CArrowSchema](ptr) }

// ReleaseStruct calls the release callback of a C struct that was not imported, or of a handler that was
// not passed to a producer. It does nothing if the struct is nil or released.
func ReleaseStruct[S CStruct](s *S) {
	if s == nil {
		return
	}
	switch s := any(s).(type) {
	case *CArrowDeviceArray:
		releaseArray(&deviceMirror(s).Array)
	case *cdata.CArrowArray:
		releaseArray(arrayMirror(s))
	case *cdata.CArrowSchema:
		if s := schemaMirror(s); s.Release != 0 {
			bridge.CallSchemaRelease(s)
		}
	case *CArrowDeviceArrayStream:
		if s.Release != 0 {
			bridge.CallStreamRelease(deviceStreamMirror(s))
		}
	case *cdata.CArrowArrayStream:
		if s := streamMirror(s); s.Release != 0 {
			bridge.CallPlainStreamRelease(s)
		}
	case *CArrowAsyncDeviceStreamHandler:
		if s.Release != 0 {
			bridge.CallHandlerRelease(handlerMirror(s))
		}
	}
}

func releaseArray(a *abi.ArrowArray) {
	if a.Release != 0 {
		bridge.CallArrayRelease(a)
	}
}

// deviceMirror, deviceStreamMirror and handlerMirror convert a pointer to a public struct to one to
// the internal mirror of the same C struct. publicDevice converts the other way.
func deviceMirror(a *CArrowDeviceArray) *abi.ArrowDeviceArray { return abi.As[abi.ArrowDeviceArray](a) }

func publicDevice(a *abi.ArrowDeviceArray) *CArrowDeviceArray { return abi.As[CArrowDeviceArray](a) }

func deviceStreamMirror(s *CArrowDeviceArrayStream) *abi.ArrowDeviceArrayStream {
	return abi.As[abi.ArrowDeviceArrayStream](s)
}

func handlerMirror(h *CArrowAsyncDeviceStreamHandler) *abi.ArrowAsyncDeviceStreamHandler {
	return abi.As[abi.ArrowAsyncDeviceStreamHandler](h)
}

// schemaMirror, arrayMirror and streamMirror convert a pointer to a C struct of cdata to one to our
// mirror of the same struct.
func schemaMirror(s *cdata.CArrowSchema) *abi.ArrowSchema {
	return (*abi.ArrowSchema)(unsafe.Pointer(s))
}

func arrayMirror(a *cdata.CArrowArray) *abi.ArrowArray {
	return (*abi.ArrowArray)(unsafe.Pointer(a))
}

func streamMirror(s *cdata.CArrowArrayStream) *abi.ArrowArrayStream {
	return (*abi.ArrowArrayStream)(unsafe.Pointer(s))
}
