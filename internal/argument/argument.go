// Package argument makes the errors about arguments and options that are nil, the same in all public packages.
// cdevice has its own, which are FieldErrors.
package argument

import (
	"context"
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
)

// Nil returns the error for an argument that is nil. call names the package and the function, as in
// "flight: DoGet", and want says what the argument should be, as in "a client".
func Nil(call, argument, want string) error {
	return fmt.Errorf("%s: %s = nil, want %s: %w", call, argument, want, arrow.ErrInvalid)
}

// Context returns an error if ctx is nil.
func Context(call string, ctx context.Context) error {
	if ctx == nil {
		return Nil(call, "ctx", "a context")
	}
	return nil
}

// Apply applies options to the settings of a call, and returns an error for an option that is nil.
func Apply[S any, O ~func(*S)](call string, settings *S, opts []O) error {
	for i, opt := range opts {
		if opt == nil {
			return Nil(call, fmt.Sprintf("opts[%d]", i), "an option")
		}
		opt(settings)
	}
	return nil
}

// IsNil reports whether v is nil, or an interface that holds a nil pointer, map, slice, channel or
// function.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}

// Options returns an error for the first option that is nil.
func Options[O any](call string, opts []O) error {
	for i, opt := range opts {
		if IsNil(opt) {
			return Nil(call, fmt.Sprintf("opts[%d]", i), "an option")
		}
	}
	return nil
}
