package cdevice

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/excerpt"
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
	Op    string // the operation: "import", "export", "wrap", "read", "copy", "new", "slice", "select", "column" or "close"
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

// ErrReleased is wrapped by errors about a C struct, a batch or an array that was used after its
// release. It wraps arrow.ErrInvalid.
var ErrReleased = fielderr.ErrReleased

var errNotLocked = fmt.Errorf("%w: a GPU must not use the address", device.ErrNotSupported)

var errTooDeep = fmt.Errorf("%w: nested deeper than %d", arrow.ErrInvalid, maxDepth)

var errTooLarge = fmt.Errorf("%w: more than %d arrays", arrow.ErrInvalid, maxNodes)

func unknownType(dt arrow.DataType) error {
	if dt == nil {
		return fmt.Errorf("%w: no data type", arrow.ErrInvalid)
	}
	return fmt.Errorf("%w: data type %s", arrow.ErrNotImplemented, excerpt.Cut(dt.Name(), excerpt.Input))
}

// typeText is a type for the words of an error, as short as one has to be; what is not a type
// is words itself.
func typeText(what any) any {
	if dt, ok := what.(arrow.DataType); ok {
		return fielderr.Type(dt)
	}
	return what
}

// invalid returns a FieldError for malformed input. The field is relative to the
// node that is being looked at; within prepends the way to it.
func invalid(op, field string, got, want any) *FieldError {
	return fieldError(op, field, got, want, arrow.ErrInvalid)
}

// fieldError takes strings in got and want as words, not as values.
func fieldError(op, field string, got, want any, err error) *FieldError {
	return &FieldError{Op: op, Field: field, Got: words(got), Want: words(want), Err: err}
}

func words(v any) any {
	if s, ok := v.(string); ok {
		return fielderr.Text(s)
	}
	return v
}

// within prepends the name of the parent to the path of a FieldError.
func within(parent string, err error) error {
	var fe *FieldError
	if errors.As(err, &fe) {
		fe.Field = parent + "." + fe.Field
	}
	return err
}

// during sets the operation of a FieldError that came from code which several
// operations share.
func during(op string, err error) error {
	var fe *FieldError
	if errors.As(err, &fe) {
		fe.Op = op
	}
	return err
}

// childName is how paths name child i.
func childName(i int) string { return fmt.Sprintf("children[%d]", i) }

// The operations that FieldError.Op names.
const (
	opImport = fielderr.Import
	opExport = fielderr.Export
	opWrap   = "wrap"
	opRead   = "read"
	opCopy   = "copy"
	opNew    = "new"
	opSlice  = "slice"
	opSelect = "select"
	opColumn = "column"
	opClose  = "close"
	opCuDF   = "for cuDF"

	opValidate = "validate"
)
