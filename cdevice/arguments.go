package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Checks of nil arguments. A public function returns an error that names the argument. It first
// takes ownership of the structs that it takes ownership of in any case. An option keeps the error
// for the function that it is passed to.

// checkCopy checks the arguments of a copy to a device.
func checkCopy(ctx context.Context, dev any) error {
	if err := fielderr.CheckContext(fielderr.OpCopy, ctx); err != nil {
		return err
	}
	if argument.IsNil(dev) {
		return fielderr.Absent(fielderr.OpCopy, "device", "the device to copy to")
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

// need records an error if v, the argument of option name, is nil.
func (n *nilOption) need(op, name string, v any, want string) {
	if n.err == nil && argument.IsNil(v) {
		n.err = fielderr.Absent(op, name, want)
	}
}
