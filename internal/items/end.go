package items

import (
	"errors"
	"fmt"
	"io"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// StreamEnd is how a stream ended: with io.EOF, or with an error.
type StreamEnd struct{ Err error }

// cutOff is an error that wraps io.EOF: the source was cut off, and its stream must not end as if it
// were complete. It wraps all that the error wraps, and io.ErrUnexpectedEOF in place of io.EOF, since
// functions of arrow-go, and programs, take an error that wraps io.EOF for the end.
type cutOff struct{ err error }

func (c *cutOff) Error() string { return c.err.Error() }

func (c *cutOff) Is(target error) bool {
	return target == io.ErrUnexpectedEOF || target != io.EOF && errors.Is(c.err, target)
}

func (c *cutOff) As(target any) bool { return errors.As(c.err, target) }

// asReported returns the error of a source as the stream reports it: one that wraps io.EOF, which itself is the end, is
// made one that does not, and one whose methods panic is the panic: consumers call them on goroutines of this module.
func asReported(err error) (reported error) {
	if err == io.EOF {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			reported = fielderr.PanicIn(fmt.Sprintf(" in an error of type %T", err), v)
		}
	}()
	_ = err.Error()
	if errors.As(err, new(*noError)) {
		panic("As finds an error of a type that no error has")
	}
	if errors.Is(err, io.EOF) {
		return &cutOff{err}
	}
	return err
}

// noError is the type of no error.
type noError struct{ error }
