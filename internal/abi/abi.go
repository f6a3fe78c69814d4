// Package abi is the C side of the Arrow interfaces in Go: one mirror for each struct of
// arrow_device.h, with the same layout, and the unsafe conversions that the other packages need.
//
// The mirrors hold C addresses as uintptr, never as unsafe.Pointer. A store through a mirror
// therefore compiles to a plain store, without a write barrier: the struct that a C caller hands in
// need not be zeroed beforehand, and filling one costs no cgo call. The garbage collector does not
// follow a uintptr; code that fills a mirror with the address of Go memory pins that memory and
// keeps it alive (see tree.Owner).
//
// Layouts are those of 64-bit platforms; layout.go makes the build fail elsewhere.
package abi

import (
	"math"
	"structs"
	"unsafe"
)

// The flags of ArrowSchema.flags.
const (
	FlagDictionaryOrdered = 1
	FlagNullable          = 2
	FlagMapKeysSorted     = 4
)

// ArrowSchema mirrors struct ArrowSchema (C data interface).
type ArrowSchema struct {
	_           structs.HostLayout
	Format      uintptr // const char*
	Name        uintptr // const char*, may be NULL
	Metadata    uintptr // const char*, length-prefixed pairs, may be NULL
	Flags       int64
	NChildren   int64
	Children    uintptr // struct ArrowSchema**
	Dictionary  uintptr // struct ArrowSchema*
	Release     uintptr // void (*)(struct ArrowSchema*); NULL once released
	PrivateData uintptr
}

// ArrowArray mirrors struct ArrowArray (C data interface).
type ArrowArray struct {
	_           structs.HostLayout
	Length      int64
	NullCount   int64
	Offset      int64
	NBuffers    int64
	NChildren   int64
	Buffers     uintptr // const void**
	Children    uintptr // struct ArrowArray**
	Dictionary  uintptr // struct ArrowArray*
	Release     uintptr // void (*)(struct ArrowArray*); NULL once released
	PrivateData uintptr
}

// ArrowArrayStream mirrors struct ArrowArrayStream (C stream interface).
type ArrowArrayStream struct {
	_            structs.HostLayout
	GetSchema    uintptr
	GetNext      uintptr
	GetLastError uintptr
	Release      uintptr // void (*)(struct ArrowArrayStream*); NULL once released
	PrivateData  uintptr
}

// ArrowDeviceArray mirrors struct ArrowDeviceArray (C device data interface).
type ArrowDeviceArray struct {
	_          structs.HostLayout
	Array      ArrowArray
	DeviceID   int64
	DeviceType int32
	SyncEvent  uintptr // void*: a pointer to the device's event type, or NULL
	Reserved   [3]int64
}

// ArrowDeviceArrayStream mirrors struct ArrowDeviceArrayStream.
type ArrowDeviceArrayStream struct {
	_            structs.HostLayout
	DeviceType   int32
	GetSchema    uintptr
	GetNext      uintptr
	GetLastError uintptr
	Release      uintptr
	PrivateData  uintptr
}

// ArrowAsyncTask mirrors struct ArrowAsyncTask.
type ArrowAsyncTask struct {
	_           structs.HostLayout
	ExtractData uintptr
	PrivateData uintptr
}

// ArrowAsyncProducer mirrors struct ArrowAsyncProducer as the shipped headers
// define it: 40 bytes, without a release member.
type ArrowAsyncProducer struct {
	_                  structs.HostLayout
	DeviceType         int32
	Request            uintptr
	Cancel             uintptr
	AdditionalMetadata uintptr
	PrivateData        uintptr
}

// ArrowAsyncDeviceStreamHandler mirrors struct ArrowAsyncDeviceStreamHandler.
type ArrowAsyncDeviceStreamHandler struct {
	_           structs.HostLayout
	OnSchema    uintptr
	OnNextTask  uintptr
	OnError     uintptr
	Release     uintptr
	Producer    uintptr
	PrivateData uintptr
}

// Pointer converts a C address to a pointer. It is the only such conversion. Memory of Go must be
// kept alive by other means.
func Pointer(addr uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

// At returns the T at a C address.
func At[T any](addr uintptr) *T { return (*T)(Pointer(addr)) }

// As returns p as a pointer to another Go type for the same C struct.
func As[T, F any](p *F) *T { return (*T)(unsafe.Pointer(p)) }

// Slice returns the n values of type T that start at a C address, as a view. A
// NULL address or n of zero gives nil.
func Slice[T any](addr uintptr, n int) []T {
	if addr == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(Pointer(addr)), n)
}

// String copies the NUL-terminated string at a C address; NULL gives "".
func String(addr uintptr) string { return string(Slice[byte](addr, StringLen(addr, math.MaxInt))) }

// StringLen returns the length of the NUL-terminated string at a C address, or limit where
// there is no NUL in that many bytes, which is all that it reads. NULL gives 0.
func StringLen(addr uintptr, limit int) int {
	if addr == 0 {
		return 0
	}
	p, n := Pointer(addr), 0
	for n < limit && *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return n
}

// AddressOf returns the address of the bytes, which the caller keeps alive.
func AddressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
