package cdevice

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// FieldError reports that a field of a C struct, or of the Go value that one is made of, does not
// hold what it should. errors.As finds it in the errors of this package:
//
//	var wrong *cdevice.FieldError
//	if errors.As(err, &wrong) {
//		fmt.Println(wrong.Field) // "ArrowDeviceArray.array.children[2].n_buffers"
//	}
type FieldError struct {
	Op    string // the operation, such as "import", "export", "copy", "validate" or "for cuDF"
	Field string // the path of the field: "ArrowDeviceArray.array.children[2].n_buffers"
	Got   any    // what the field holds; nil if the error is not about its value
	Want  any    // what the field should hold; nil if the error is not about its value
	Err   error  // wraps arrow.ErrInvalid, arrow.ErrNotImplemented, device.ErrNotSupported or ErrReleased
}

// Error returns the text, which quotes at most 100 bytes of the input:
//
//	cdevice: import: ArrowDeviceArray.array.children[2].n_buffers = 1, want 2 for int64: invalid
func (e *FieldError) Error() string { return (*fielderr.Error)(e).Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// ErrReleased is wrapped by errors about a C struct, batch, array, reader or stream that was used
// after it was released or closed. It wraps arrow.ErrInvalid.
var ErrReleased = fielderr.ErrReleased

var errNotLocked = fmt.Errorf("%w: a GPU must not use the address", device.ErrNotSupported)

// ProducerError is an error that the producer of a stream reported, in the code that a callback
// returned or in a call of on_error:
//
//	cdevice: import: ArrowDeviceArrayStream.get_next: input/output error (errno 5): disk on fire
//
// It wraps the code as a syscall.Errno, and what the code means in Go: arrow.ErrInvalid
// for EINVAL, arrow.ErrNotImplemented for ENOSYS, device.ErrNotSupported for ENOTSUP and EOPNOTSUPP,
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
	err := errno.Error(code)
	if err == 0 {
		return fmt.Sprintf("code %d", code)
	}
	return fmt.Sprintf("%s (errno %d)", err, code)
}

// errnos maps errors to codes of C and back: callbacks
// return the code of the first entry that an error wraps, and an error that came with a
// code wraps that code's entries.
var errnos = []struct {
	err   error
	errno syscall.Errno
}{
	{context.Canceled, syscall.ECANCELED},
	{context.DeadlineExceeded, syscall.ETIMEDOUT},
	{items.ErrClosed, syscall.ECANCELED}, // before arrow.ErrInvalid, which it wraps
	{device.ErrNotSupported, syscall.ENOTSUP},
	{device.ErrNotSupported, syscall.EOPNOTSUPP}, // another number on macOS and Windows
	{arrow.ErrNotImplemented, syscall.ENOSYS},
	{arrow.ErrInvalid, syscall.EINVAL},
	{arrow.ErrType, syscall.EINVAL},
	{arrow.ErrKey, syscall.EINVAL},
	{arrow.ErrIndex, syscall.EINVAL},
}

// errnoOf returns the code of an error for a consumer in C: the code that it came with, the
// table's, or EIO.
func errnoOf(err error) int {
	var coded interface{ errno() int }
	if errors.As(err, &coded) && isCode(coded.errno()) {
		return coded.errno()
	}
	var system syscall.Errno
	if errors.As(err, &system) {
		if code := errno.Code(system); code != 0 {
			return code
		}
	}
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return errno.Code(e.errno)
		}
	}
	return errno.Code(syscall.EIO)
}

// isCode reports whether the number is an error code in C: it fits an int and is not zero.
func isCode(code int) bool { return code != 0 && int(int32(code)) == code }

// errorsOf returns the errors that an error with a code from C wraps.
func errorsOf(code int) []error {
	err := errno.Error(code)
	if err == 0 {
		return nil // not an errno: nothing is known about it
	}
	wrapped := []error{err}
	for _, e := range errnos {
		if e.errno == err {
			wrapped = append(wrapped, e.err)
			break
		}
	}
	return wrapped
}
