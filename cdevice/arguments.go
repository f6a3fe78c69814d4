package cdevice

import (
	"context"
	"fmt"

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

// apply applies options to o. first, which is a part of o, keeps the first error of an option that is nil, or was given nil.
func apply[O any, F ~func(*O)](op string, o *O, first *error, opts []F) {
	for i, opt := range opts {
		if opt == nil {
			need(first, op, fmt.Sprintf("opts[%d]", i), nil, "an option")
			continue
		}
		opt(o)
	}
}

// need sets *first, unless it is set, to an error if v, the argument of option name, is nil.
func need(first *error, op, name string, v any, want string) {
	if *first == nil && argument.IsNil(v) {
		*first = fielderr.Absent(op, name, want)
	}
}
