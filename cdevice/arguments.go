package cdevice

import (
	"context"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"reflect"
)

// Arguments that are nil. A public function returns an error that names the argument, before
// it does anything else but take what it takes in any case; options keep the error for the function
// that they are given to.

// isNil reports whether an argument is nil: nothing, or an interface that holds a nil
// pointer, map, slice or function.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}

// absent is the error for an argument that is nil.
func absent(op, name, want string) error { return fielderr.Invalid(op, name, "nil", want) }

// checkContext returns an error for a context that is nil.
func checkContext(op string, ctx context.Context) error {
	if ctx == nil {
		return absent(op, "ctx", "a context")
	}
	return nil
}

// checkCopy checks the arguments of a copy to a device.
func checkCopy(ctx context.Context, dev any) error {
	if err := checkContext(fielderr.OpCopy, ctx); err != nil {
		return err
	}
	if isNil(dev) {
		return absent(fielderr.OpCopy, "device", "the device to copy to")
	}
	return nil
}

// apply applies options to o. Those that are nil do nothing.
func apply[O any, F ~func(*O)](o *O, opts []F) {
	for _, opt := range opts {
		if opt != nil {
			opt(o)
		}
	}
}

// nilOption keeps the first error of an option that was given nil.
type nilOption struct{ err error }

// need notes that option name was given nil.
func (n *nilOption) need(op, name string, v any, want string) {
	if n.err == nil && isNil(v) {
		n.err = absent(op, name, want)
	}
}
