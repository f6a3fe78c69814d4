package cdevice

import (
	"context"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Arguments that are nil. A public function returns an error that names the argument, before
// it does anything else but take what it takes in any case; options keep the error for the function
// that they are given to.

// checkCopy checks the arguments of a copy to a device.
func checkCopy(ctx context.Context, dev any) error {
	if err := fielderr.CheckContext(fielderr.OpCopy, ctx); err != nil {
		return err
	}
	if fielderr.IsNil(dev) {
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

// need notes that option name was given nil.
func (n *nilOption) need(op, name string, v any, want string) {
	if n.err == nil && fielderr.IsNil(v) {
		n.err = fielderr.Absent(op, name, want)
	}
}
