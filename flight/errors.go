package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Error reports an invalid argument, or an invalid part of a message.
type Error struct {
	Field string // "FlightData.data_body", "RecordBatch.buffers[3]", "WithPrefetch"
	Text  string // the fault
	Err   error  // arrow.ErrInvalid, or the cause
}

func (e *Error) Error() string { return fmt.Sprintf("flight: %s: %s: %v", e.Field, e.Text, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus returns the gRPC status, with the code for Err.
func (e *Error) GRPCStatus() *status.Status { return newStatus(e.Err, e.Error()) }

func invalid(field, format string, args ...any) error {
	return &Error{field, fmt.Sprintf(format, args...), arrow.ErrInvalid}
}

// inRange returns an error about an argument unless ok.
func inRange(ok bool, function, format string, args ...any) error {
	if ok {
		return nil
	}
	return invalid(function, format, args...)
}

// absent returns the error for an argument that is nil.
func absent(function, name, want string) error {
	return withStatus(argument.Nil("flight: "+function, name, want))
}

func notNil(v any, function, name, want string) error {
	if argument.IsNil(v) {
		return absent(function, name, want)
	}
	return nil
}

func noneNil[T any](function string, opts []T) error {
	for i, opt := range opts {
		if argument.IsNil(opt) {
			return absent(function, fmt.Sprintf("opts[%d]", i), "an option")
		}
	}
	return nil
}

// malformed makes an Error of an error of package ipcmessage about a message.
func malformed(err error) error {
	var e *ipcmessage.Error
	if !errors.As(err, &e) {
		return err
	}
	field, text := e.Field, e.Text
	switch field {
	case "metadata":
		field = "FlightData.data_header"
	case "body":
		field = "FlightData.data_body"
	}
	if e.Limit {
		text += " (WithMaxMessageSize)"
	}
	return invalid(field, "%s", text)
}

// unread makes an Error of an error of arrow-go's IPC reader that wraps no error known to callers.
func unread(err error) error {
	var e *Error
	switch {
	case errors.As(err, &e), errors.Is(err, arrow.ErrInvalid), errors.Is(err, arrow.ErrNotImplemented), hasStatus(err):
		return err
	case errors.Is(err, sizeclass.ErrLimit): // of this side's allocator
		return fmt.Errorf("flight: %w", err)
	}
	return invalid("FlightData", "not read: %v", err)
}

// streamError is an error with its gRPC status, and with the sentinel error that this stands for.
type streamError struct {
	err      error
	text     string // that of st, if this package made it: a program may wrap the error, and gRPC then sends the text of that
	st       *status.Status
	sentinel error // or nil
}

func (e *streamError) Error() string              { return e.text }
func (e *streamError) GRPCStatus() *status.Status { return e.st }

func (e *streamError) Unwrap() []error {
	if e.sentinel == nil {
		return []error{e.err}
	}
	return []error{e.err, e.sentinel}
}

// withStatus adds a gRPC status to an error that is neither nil nor io.EOF: its own, or one for its cause.
func withStatus(err error) error {
	if _, done := err.(*streamError); done || err == nil || err == io.EOF {
		return err
	}
	text := err.Error()
	st, ok := status.FromError(err)
	switch {
	case !ok:
		st = newStatus(err, text)
		text = st.Message()
	case isOwn(err):
		st = withText(st, text)
		text = st.Message()
	}
	return &streamError{err, text, st, sentinelOf(st)}
}

// isOwn reports whether the status of an error is of this package.
func isOwn(err error) bool {
	var with interface{ GRPCStatus() *status.Status }
	errors.As(err, &with)
	switch with.(type) {
	case *Error, *streamError:
		return true
	}
	return false
}

// contextError returns the error of ctx in place of one of a call that was canceled because ctx ended, or of a ticket that
// was withdrawn with the call. The server may see the deadline before ctx does.
func contextError(ctx context.Context, err error) error {
	if status.Code(withStatus(err)) != codes.Canceled && !errors.As(err, new(flightticket.OpenError)) {
		return err
	}
	ended := ctx.Err()
	if deadline, ok := ctx.Deadline(); ended == nil && ok && !time.Now().Before(deadline) {
		ended = context.DeadlineExceeded
	}
	if ended == nil {
		return err
	}
	return fmt.Errorf("flight: %w", ended)
}

// hasStatus reports whether an error comes from gRPC or from a context.
func hasStatus(err error) bool {
	_, ok := status.FromError(err)
	return ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// guarded calls a function of the program. It returns an error if that panics, or its error does, or it ends the goroutine.
func guarded(name string, f func() error) (err error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("flight: panic in %s: %v", name, v)
		} else if !returned {
			err = fmt.Errorf("flight: %s ended its goroutine", name)
		}
	}()
	if err = f(); err != nil {
		_ = err.Error() // which usually panics if err holds a nil pointer
	}
	returned = true
	return err
}
