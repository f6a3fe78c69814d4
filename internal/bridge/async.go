package bridge

// #include <errno.h>
// #include "async.h"
import "C"

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// Handler is the Go side of an ArrowAsyncDeviceStreamHandler that we export: its
// callbacks. The struct's private_data is the handle of one. A method that panics has
// returned EIO.
type Handler interface {
	handle.Releaser
	OnSchema(producer *abi.ArrowAsyncProducer, schema *abi.ArrowSchema) int
	OnNextTask(task *abi.ArrowAsyncTask, metadata uintptr) int
	OnError(code int, message string, metadata uintptr)
}

// ExportHandler fills *out with the callbacks of h, which stays reachable until the
// release callback has called its Release. It returns the handle.
func ExportHandler(h Handler, out *abi.ArrowAsyncDeviceStreamHandler) handle.Word {
	word := handle.New(h)
	out.OnSchema = uintptr(C.cdevice_v0_handler_on_schema)
	out.OnNextTask = uintptr(C.cdevice_v0_handler_on_next_task)
	out.OnError = uintptr(C.cdevice_v0_handler_on_error)
	out.Release = uintptr(C.cdevice_v0_handler_release)
	out.Producer = 0
	out.PrivateData = uintptr(word)
	return word
}

//export cdevice_v0_go_on_schema
func cdevice_v0_go_on_schema(word C.uint64_t, producer, schema C.uintptr_t) C.int {
	return ask(word, func(h Handler) int {
		return h.OnSchema(abi.At[abi.ArrowAsyncProducer](uintptr(producer)), abi.At[abi.ArrowSchema](uintptr(schema)))
	})
}

//export cdevice_v0_go_on_next_task
func cdevice_v0_go_on_next_task(word C.uint64_t, task, metadata C.uintptr_t) C.int {
	return ask(word, func(h Handler) int {
		return h.OnNextTask(abi.At[abi.ArrowAsyncTask](uintptr(task)), uintptr(metadata))
	})
}

//export cdevice_v0_go_on_error
func cdevice_v0_go_on_error(word C.uint64_t, code C.int, message, metadata C.uintptr_t) {
	ask(word, func(h Handler) int {
		h.OnError(int(code), text(uintptr(message)), uintptr(metadata))
		return 0
	})
}

// Task is the Go side of an ArrowAsyncTask that we export.
type Task interface {
	handle.Releaser
	// ExtractData is called at most once. A nil out drops the data.
	ExtractData(out *abi.ArrowDeviceArray) int
}

// ExportTask fills *out with the callback of t, and returns the handle. The code that takes the
// handle owns the task.
func ExportTask(t Task, out *abi.ArrowAsyncTask) handle.Word {
	word := handle.New(t)
	out.ExtractData = uintptr(C.cdevice_v0_task_extract_data)
	out.PrivateData = uintptr(word)
	return word
}

//export cdevice_v0_go_extract_data
func cdevice_v0_go_extract_data(word C.uint64_t, out C.uintptr_t) (code C.int) {
	t, ok := handle.Take(handle.Word(word)).(Task)
	if !ok {
		return C.EINVAL
	}
	code = C.EIO
	guard(func() { code = C.int(t.ExtractData(abi.At[abi.ArrowDeviceArray](uintptr(out)))) })
	return code
}

// Calls of the callbacks of a foreign handler. They run on the calling thread, and may call back
// into Go. The handler must not be released.

// CallOnSchema calls on_schema and returns its errno-compatible code.
func CallOnSchema(h *abi.ArrowAsyncDeviceStreamHandler, schema *abi.ArrowSchema) int {
	return int(C.cdevice_v0_call_on_schema(handlerWords(h), (*C.uint64_t)(unsafe.Pointer(schema))))
}

// CallOnNextTask calls on_next_task and returns its errno-compatible code. A nil task is
// the end; metadata is encoded, or empty.
func CallOnNextTask(h *abi.ArrowAsyncDeviceStreamHandler, task *abi.ArrowAsyncTask, metadata []byte) int {
	return int(C.cdevice_v0_call_on_next_task(handlerWords(h), taskWords(task), chars(metadata)))
}

// CallOnError calls on_error with a text, which ends with a NUL, and metadata, which is
// encoded, or empty.
func CallOnError(h *abi.ArrowAsyncDeviceStreamHandler, code int, message, metadata []byte) {
	C.cdevice_v0_call_on_error(handlerWords(h), C.int(code), chars(message), chars(metadata))
}

// CallHandlerRelease calls release.
func CallHandlerRelease(h *abi.ArrowAsyncDeviceStreamHandler) {
	C.cdevice_v0_call_handler_release(handlerWords(h))
}

// CallExtractData calls extract_data of a foreign task and returns its errno-compatible code. A nil
// out drops the data.
func CallExtractData(task *abi.ArrowAsyncTask, out *abi.ArrowDeviceArray) int {
	return int(C.cdevice_v0_call_extract_data(taskWords(task), (*C.uint64_t)(unsafe.Pointer(out))))
}

// CallRequest calls request of the producer of the consumer with this handle.
func CallRequest(producer *abi.ArrowAsyncProducer, n int64, consumer handle.Word) {
	C.cdevice_v0_call_request(C.uintptr_t(uintptr(unsafe.Pointer(producer))), C.int64_t(n), C.uint64_t(consumer))
}

// CallCancel calls cancel of the producer of the consumer with this handle.
func CallCancel(producer *abi.ArrowAsyncProducer, consumer handle.Word) {
	C.cdevice_v0_call_cancel(C.uintptr_t(uintptr(unsafe.Pointer(producer))), C.uint64_t(consumer))
}

// Calling reports whether the callback that this goroutine serves was called inside a call that the
// consumer makes on the same thread.
func Calling(consumer handle.Word) bool {
	return C.cdevice_v0_calling(C.uint64_t(consumer)) != 0
}

func handlerWords(h *abi.ArrowAsyncDeviceStreamHandler) *C.uint64_t {
	return (*C.uint64_t)(unsafe.Pointer(h))
}

func taskWords(t *abi.ArrowAsyncTask) *C.uint64_t { return (*C.uint64_t)(unsafe.Pointer(t)) }

// chars returns the address of the bytes, or NULL if there are none.
func chars(b []byte) *C.char {
	if len(b) == 0 {
		return nil
	}
	return (*C.char)(unsafe.Pointer(&b[0]))
}
