package cdevice

import (
	"fmt"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
)

// ProducerError is an error that the producer of a stream reported, in the code that a callback
// returned or in a call of on_error:
//
//	cdevice: import: ArrowDeviceArrayStream.get_next: input/output error (errno 5): disk on fire
//
// It wraps the code as a syscall.Errno, and what the code means in Go: arrow.ErrInvalid
// for EINVAL, arrow.ErrNotImplemented for ENOSYS, device.ErrNotSupported for ENOTSUP,
// context.Canceled for ECANCELED, context.DeadlineExceeded for ETIMEDOUT. A stream of this package
// that ends with it tells its consumer the same code.
type ProducerError struct {
	// Callback is the struct and the callback: get_schema or get_next of ArrowDeviceArrayStream or
	// ArrowArrayStream, as in ArrowDeviceArrayStream.get_next; ArrowAsyncDeviceStreamHandler.on_error;
	// ArrowAsyncTask.extract_data if a task of an asynchronous stream failed and no on_error followed.
	Callback string
	// Code is meant to be an errno. It is not zero, unless a producer called on_error with zero.
	Code int
	// Message is the text of get_last_error or on_error, at most 64 KiB of it; it may be empty, as of
	// streams whose get_last_error is NULL.
	Message string
	// Metadata is the metadata that on_error was called with, usually empty.
	Metadata arrow.Metadata
}

// Error returns the callback, the code in words and the message.
func (e *ProducerError) Error() string {
	text := fmt.Sprintf("cdevice: import: %s: %s", e.Callback, codeText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Unwrap returns the code as a syscall.Errno and the error that it stands for in Go; nil if it is
// no errno.
func (e *ProducerError) Unwrap() []error { return errorsOf(e.Code) }

func (e *ProducerError) errno() int { return e.Code }

// codeText prints a code from C.
func codeText(code int) string {
	if code <= 0 {
		return fmt.Sprintf("code %d", code)
	}
	return fmt.Sprintf("%s (errno %d)", syscall.Errno(code), code)
}
