package fielderr

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

// Panic returns the error for a panic in a program's code that was called from C or on a goroutine
// of this module.
func Panic(v any) error {
	err, _ := v.(error)
	return &programPanic{"cdevice: panic: " + excerpt.Cut(fmt.Sprint(v), excerpt.Message), err}
}

// programPanic is a panic as an error. Its text is that of the value, shortened for an error.
type programPanic struct {
	text string
	err  error // the value, if that is an error
}

// Error returns the text.
func (e *programPanic) Error() string { return e.text }

// Unwrap returns the value of the panic, if that is an error.
func (e *programPanic) Unwrap() error { return e.err }

// Released returns the error of an operation on an object that was released.
func Released(what string) error {
	return New(OpRead, what, nil, nil, ErrReleased)
}
