package cdevice

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// FieldError reports that a field of a C struct, or of the Go value that one is made of, does not
// hold what it should. errors.As finds it in the errors of this package:
//
//	var wrong *cdevice.FieldError
//	if errors.As(err, &wrong) {
//		fmt.Println(wrong.Field) // "ArrowDeviceArray.array.children[2].n_buffers"
//	}
type FieldError struct {
	Op    string // the operation, such as "import", "export", "copy", "validate" or "for cuDF"
	Field string // the path of the field: "ArrowDeviceArray.array.children[2].n_buffers"
	Got   any    // what the field holds; nil if the error is not about its value
	Want  any    // what the field should hold; nil if the error is not about its value
	Err   error  // wraps arrow.ErrInvalid, arrow.ErrNotImplemented, device.ErrNotSupported or ErrReleased
}

// Error returns the text, which quotes at most 100 bytes of the input:
//
//	cdevice: import: ArrowDeviceArray.array.children[2].n_buffers = 1, want 2 for int64: invalid
func (e *FieldError) Error() string { return (*fielderr.Error)(e).Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// ErrReleased is wrapped by errors about a C struct, batch, array, reader or stream that was used
// after it was released or closed. It wraps arrow.ErrInvalid.
var ErrReleased = fielderr.ErrReleased

var errNotLocked = fmt.Errorf("%w: a GPU must not use the address", device.ErrNotSupported)
