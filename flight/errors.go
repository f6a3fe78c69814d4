package flight

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/share"
)

// Error reports an argument, or a part of a message, that is not as it must be.
type Error struct {
	Field string // "FlightData.data_body", "RecordBatch.buffers[3]", "client"
	Text  string // what is wrong with it
	Err   error  // arrow.ErrInvalid, or what caused it
}

func (e *Error) Error() string { return fmt.Sprintf("flight: %s: %s: %v", e.Field, e.Text, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus returns the status of grpc, with the code that Err stands for.
func (e *Error) GRPCStatus() *status.Status { return status.New(codeOf(e.Err), e.Error()) }

func invalid(field, text string) error { return &Error{field, text, arrow.ErrInvalid} }

// refused makes an Error of the error about a message of Arrow IPC.
func refused(err error) error {
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
	return invalid(field, text)
}

func absent(name, want string) error { return invalid(name, "nil, want "+want) }

// streamError is an error with the status that it has for grpc, and the context's error that its code
// stands for.
type streamError struct {
	err error
	st  *status.Status
	is  error // nil: none
}

func (e *streamError) Error() string              { return e.err.Error() }
func (e *streamError) GRPCStatus() *status.Status { return e.st }

func (e *streamError) Unwrap() []error {
	if e.is == nil {
		return []error{e.err}
	}
	return []error{e.err, e.is}
}

// withStatus gives an error a status for grpc, unless it is nil or io.EOF: its own, or the one that its
// cause stands for.
func withStatus(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var done *streamError
	if errors.As(err, &done) {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.New(codeOf(err), err.Error())
	}
	e := &streamError{err: err, st: st}
	switch st.Code() {
	case codes.Canceled:
		e.is = context.Canceled
	case codes.DeadlineExceeded:
		e.is = context.DeadlineExceeded
	}
	return e
}

// codeOf is the code of an error that has none.
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, share.ErrOwnerGone):
		return codes.Unavailable
	case errors.As(err, new(openError)) && !withStatusOf(err):
		return codes.FailedPrecondition
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, arrow.ErrInvalid), errors.Is(err, arrow.ErrType):
		return codes.InvalidArgument
	case errors.Is(err, arrow.ErrNotImplemented), errors.Is(err, device.ErrNotSupported):
		return codes.Unimplemented
	case errors.Is(err, arrow.ErrNotFound), errors.Is(err, arrow.ErrKey):
		return codes.NotFound
	}
	return codes.Unknown
}

// guarded calls a function of the program. A panic in it or in its error, or an end of its goroutine, is an error.
func guarded(what string, f func() error) (err error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("flight: panic in %s: %v", what, v)
		} else if !returned {
			err = fmt.Errorf("flight: %s ended its goroutine", what)
		}
	}()
	if err = f(); err != nil {
		_ = err.Error() // which panics if err holds a nil pointer, mostly
	}
	returned = true
	return err
}

// withStatusOf reports whether an error comes from grpc or from a context.
func withStatusOf(err error) bool {
	_, ok := status.FromError(err)
	return ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
