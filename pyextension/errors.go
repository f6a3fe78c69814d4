//go:build cgo && unix

package pyextension

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// exception is an error that is an exception of a given kind in Python.
type exception struct {
	kind string
	text string
	err  error // the wrapped error, or nil
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
	err  error
	kind string
}{
	{context.DeadlineExceeded, "TimeoutError"},
	{context.Canceled, "Cancelled"},
	{fs.ErrNotExist, "FileNotFoundError"},
	{fs.ErrPermission, "PermissionError"},
	{arrow.ErrType, "TypeError"},
	{arrow.ErrIndex, "IndexError"},
	{arrow.ErrKey, "KeyError"},
	{arrow.ErrNotImplemented, "NotImplementedError"},
	{device.ErrNotSupported, "NotImplementedError"},
	{arrow.ErrInvalid, "ValueError"},
}

// kindOf returns the kind of exception that an error becomes.
func kindOf(err error) string {
	var e *exception
	if errors.As(err, &e) {
		return e.kind
	}
	if _, is := panicOf(err); is {
		return "Panic"
	}
	for _, known := range kinds {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	return "Error"
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
	return &exception{kind: kindOf(err), text: where + ": " + err.Error(), err: err}
}

var errNotCPU = fmt.Errorf("%w: the memory is that of a device, which the CPU cannot access: call to_host() first", arrow.ErrType)
