package fielderr

import (
	"fmt"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

// Panic returns the error for a panic in a program's code that was called from C or on a goroutine
// of this module. A deferred function calls it, so that the stack is that of the panic.
func Panic(v any) error { return PanicIn("", v) }

// PanicIn is [Panic] with the place, such as " in an error of type E".
func PanicIn(where string, v any) error {
	err, _ := v.(error)
	return &programPanic{"cdevice: panic" + where + ": " + excerpt.Cut(textOf(v), excerpt.Message), err, debug.Stack()}
}

// textOf returns the text of the value of a panic. The text of a program's value may panic, and that panic's too, which fmt
// does not recover.
func textOf(v any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("a %T, whose text panics", v)
		}
	}()
	return fmt.Sprint(v)
}

// Goexit is the error for a program's code that ended its goroutine.
var Goexit error = &programPanic{text: "cdevice: the code that makes the items of the stream ended its goroutine"}

// programPanic is a panic as an error. Its text is that of the value, shortened for an error.
type programPanic struct {
	text  string
	err   error // the value, if that is an error
	stack []byte
}

// Error returns the text.
func (e *programPanic) Error() string { return e.text }

// Unwrap returns the value of the panic, if that is an error.
func (e *programPanic) Unwrap() error { return e.err }

// Stack returns the stack of the panic, or nil: a goroutine that has ended has none.
func (e *programPanic) Stack() []byte { return e.stack }

// Released returns the error of an operation on an object that was released.
func Released(what string) error {
	return New(OpRead, what, nil, nil, ErrReleased)
}
