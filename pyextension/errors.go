//go:build cgo && unix

package pyextension

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// exception is an error that is an exception of a given kind in Python.
type exception struct {
	kind  string
	text  string
	err   error         // the wrapped error, or nil
	errno syscall.Errno // of an OSError
}

func (e *exception) Error() string { return e.text }
func (e *exception) Unwrap() error { return e.err }

func typeErrorf(format string, args ...any) error {
	return &exception{kind: "TypeError", text: fmt.Sprintf(format, args...), err: arrow.ErrType}
}

func valueErrorf(format string, args ...any) error {
	return &exception{kind: "ValueError", text: fmt.Sprintf(format, args...), err: arrow.ErrInvalid}
}

// kinds are the exceptions of well-known errors, the first that an error wraps.
var kinds = []struct {
	err   error
	kind  string
	errno syscall.Errno // of an OSError, if the error has none
}{
	{context.DeadlineExceeded, "TimeoutError", 0},
	{context.Canceled, "Cancelled", 0},
	{fs.ErrNotExist, "FileNotFoundError", syscall.ENOENT},
	{fs.ErrPermission, "PermissionError", syscall.EACCES},
	{arrow.ErrType, "TypeError", 0},
	{arrow.ErrIndex, "IndexError", 0},
	{arrow.ErrKey, "KeyError", 0},
	{arrow.ErrNotImplemented, "NotImplementedError", 0},
	{device.ErrNotSupported, "NotImplementedError", 0},
	{arrow.ErrInvalid, "ValueError", 0},
}

// kindOf returns the kind of exception that an error becomes, and the error of the system of an OSError, or 0.
func kindOf(err error) (string, syscall.Errno) {
	var e *exception
	if errors.As(err, &e) {
		return e.kind, e.errno
	}
	if _, is := panicOf(err); is {
		return "Panic", 0
	}
	if source := (*sourceError)(nil); errors.As(err, &source) { // whose exception was raised before
		return "Error", 0
	}
	var system syscall.Errno
	errors.As(err, &system)
	for _, known := range kinds {
		if errors.Is(err, known.err) {
			if known.errno != 0 {
				return known.kind, cmp.Or(system, known.errno)
			}
			return known.kind, 0
		}
	}
	if system != 0 {
		return "OSError", system
	}
	return "Error", 0
}

// textOf returns the text of an error, with the stack of a panic.
func textOf(err error) string {
	if p, is := panicOf(err); is && len(p.Stack()) > 0 {
		return fmt.Sprintf("%v\n\n%s", err, p.Stack())
	}
	return err.Error()
}

// stacked is a panic, or the end of its goroutine, in the code of a stream: an error of cdevice.
type stacked interface{ Stack() []byte }

func panicOf(err error) (p stacked, is bool) {
	is = errors.As(err, &p)
	return p, is
}

// about puts a text before an error, whose exception stays the same.
func about(where string, err error) error {
	kind, code := kindOf(err)
	return &exception{kind: kind, text: where + ": " + err.Error(), err: err, errno: code}
}

var errNotCPU = fmt.Errorf("%w: the memory is that of a device, which the CPU cannot access: call to_host() first", arrow.ErrType)

// sourceError is an exception that a source in Python raised while Go read it. It is raised as it is by the first call that fails
// because of it; another library that reads a stream has its text.
type sourceError struct {
	text      string
	code      syscall.Errno
	exception atomic.Uintptr // an object of Python, or 0 once it was taken
}

func (e *sourceError) Error() string { return e.text }
func (e *sourceError) Unwrap() error { return e.code }

// take returns the exception, owned by the caller, or 0.
func (e *sourceError) take() uintptr { return e.exception.Swap(0) }
