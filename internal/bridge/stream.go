package bridge

// #include <errno.h>
// #include "stream.h"
import "C"

import (
	"math"
	"unicode/utf8"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/excerpt"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// Stream is the Go side of a stream that we export, an ArrowDeviceArrayStream or a plain
// ArrowArrayStream: its callbacks and their results. The struct's private_data is the
// handle of one. A method that panics has returned EIO.
type Stream interface {
	handle.Releaser
	GetSchema(out *abi.ArrowSchema) int
	GetNext(out uintptr) int // the address of the kind's array struct
	GetLastError() uintptr   // a C string, or 0
}

// ExportStream fills *out with the callbacks of s, which stays reachable until the
// release callback has called its Release.
func ExportStream(s Stream, deviceType int32, out *abi.ArrowDeviceArrayStream) {
	out.DeviceType = deviceType
	out.GetSchema = uintptr(C.cdevice_v0_stream_get_schema)
	out.GetNext = uintptr(C.cdevice_v0_stream_get_next)
	out.GetLastError = uintptr(C.cdevice_v0_stream_get_last_error)
	out.Release = uintptr(C.cdevice_v0_stream_release)
	out.PrivateData = uintptr(handle.New(s))
}

// ExportPlainStream fills *out with the callbacks of s, as [ExportStream] does.
func ExportPlainStream(s Stream, out *abi.ArrowArrayStream) {
	out.GetSchema = uintptr(C.cdevice_v0_plain_stream_get_schema)
	out.GetNext = uintptr(C.cdevice_v0_plain_stream_get_next)
	out.GetLastError = uintptr(C.cdevice_v0_plain_stream_get_last_error)
	out.Release = uintptr(C.cdevice_v0_plain_stream_release)
	out.PrivateData = uintptr(handle.New(s))
}

// ask calls do with the value of a handle, in a guard, and returns what do does: EINVAL if the
// handle no longer names a T, EIO if do panics.
func ask[T any](word C.uint64_t, do func(T) int) (code C.int) {
	v, ok := handle.Get(handle.Word(word)).(T)
	if !ok {
		return C.EINVAL
	}
	code = C.EIO
	guard(func() { code = C.int(do(v)) })
	return code
}

//export cdevice_v0_go_stream_get_schema
func cdevice_v0_go_stream_get_schema(word C.uint64_t, out C.uintptr_t) C.int {
	return ask(word, func(s Stream) int { return s.GetSchema(abi.At[abi.ArrowSchema](uintptr(out))) })
}

//export cdevice_v0_go_stream_get_next
func cdevice_v0_go_stream_get_next(word C.uint64_t, out C.uintptr_t) C.int {
	return ask(word, func(s Stream) int { return s.GetNext(uintptr(out)) })
}

//export cdevice_v0_go_stream_get_last_error
func cdevice_v0_go_stream_get_last_error(word C.uint64_t) (text C.uintptr_t) {
	ask(word, func(s Stream) int {
		text = C.uintptr_t(s.GetLastError())
		return 0
	})
	return text
}

// Calls of the callbacks of a foreign stream. They run on the calling thread, and may call back
// into Go. The stream must not be released.

// CallGetSchema calls get_schema and returns its errno-compatible code.
func CallGetSchema(s *abi.ArrowDeviceArrayStream, out *abi.ArrowSchema) int {
	return int(C.cdevice_v0_call_stream_get_schema(streamWords(s), (*C.uint64_t)(unsafe.Pointer(out))))
}

// CallGetNext calls get_next and returns its errno-compatible code.
func CallGetNext(s *abi.ArrowDeviceArrayStream, out *abi.ArrowDeviceArray) int {
	return int(C.cdevice_v0_call_stream_get_next(streamWords(s), (*C.uint64_t)(unsafe.Pointer(out))))
}

// CallGetLastError calls get_last_error and copies the text that it returns, as [text] does. It is
// empty if there is none, or no callback.
func CallGetLastError(s *abi.ArrowDeviceArrayStream) string {
	return text(uintptr(unsafe.Pointer(C.cdevice_v0_call_stream_get_last_error(streamWords(s)))))
}

// text copies the error text of a producer. A text longer than 64 KiB is cut, with a mark that has
// its length.
func text(addr uintptr) string {
	size := abi.StringLen(addr, math.MaxInt)
	// The last character may be incomplete if the text is cut.
	beginning := string(abi.Slice[byte](addr, min(size, excerpt.Message+utf8.UTFMax)))
	return excerpt.Shortened(beginning, size, excerpt.Message)
}

// CallStreamRelease calls release.
func CallStreamRelease(s *abi.ArrowDeviceArrayStream) {
	C.cdevice_v0_call_stream_release(streamWords(s))
}

// CallPlainGetSchema calls get_schema of a plain stream; see [CallGetSchema].
func CallPlainGetSchema(s *abi.ArrowArrayStream, out *abi.ArrowSchema) int {
	return int(C.cdevice_v0_call_plain_stream_get_schema(plainWords(s), (*C.uint64_t)(unsafe.Pointer(out))))
}

// CallPlainGetNext calls get_next of a plain stream; see [CallGetNext].
func CallPlainGetNext(s *abi.ArrowArrayStream, out *abi.ArrowArray) int {
	return int(C.cdevice_v0_call_plain_stream_get_next(plainWords(s), (*C.uint64_t)(unsafe.Pointer(out))))
}

// CallPlainGetLastError calls get_last_error of a plain stream; see [CallGetLastError].
func CallPlainGetLastError(s *abi.ArrowArrayStream) string {
	return text(uintptr(unsafe.Pointer(C.cdevice_v0_call_plain_stream_get_last_error(plainWords(s)))))
}

// CallPlainStreamRelease calls release of a plain stream.
func CallPlainStreamRelease(s *abi.ArrowArrayStream) {
	C.cdevice_v0_call_plain_stream_release(plainWords(s))
}

func streamWords(s *abi.ArrowDeviceArrayStream) *C.uint64_t {
	return (*C.uint64_t)(unsafe.Pointer(s))
}

func plainWords(s *abi.ArrowArrayStream) *C.uint64_t {
	return (*C.uint64_t)(unsafe.Pointer(s))
}
