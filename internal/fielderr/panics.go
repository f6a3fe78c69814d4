package fielderr

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

// Panic is the error that a panic in a program's code becomes, where the call came
// from C or from a goroutine of ours.
func Panic(v any) error {
	err, _ := v.(error)
	return &programPanic{"cdevice: panic: " + excerpt.Cut(fmt.Sprint(v), excerpt.Message), err}
}

// programPanic is a panic as an error. The text is that of the value, as much of it as an error
// prints.
type programPanic struct {
	text string
	err  error // the value, if that is an error
}

func (e *programPanic) Error() string { return e.text }

func (e *programPanic) Unwrap() error { return e.err }

func Released(what string) error {
	return New(OpRead, what, nil, nil, ErrReleased)
}
