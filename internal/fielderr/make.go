package fielderr

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// The operations that Error.Op names.
const (
	OpImport     = "import"
	OpExport     = "export"
	OpWrap       = "wrap"
	OpRead       = "read"
	OpCopy       = "copy"
	OpNew        = "new"
	OpSlice      = "slice"
	OpSelect     = "select"
	OpWithColumn = "with column"
	OpColumn     = "column"
	OpClose      = "close"
	OpWait       = "wait"
	OpCuDF       = "for cuDF"
	OpFromCuDF   = "from cuDF"
	OpValidate   = "validate"
	OpWaitOn     = "wait on"
	OpUsedOn     = "used on"
	OpRecord     = "record event"
)

// Invalid returns an error for malformed input. The field is relative to the current node; Within
// prepends the path of that.
func Invalid(op, field string, got, want any) *Error {
	return New(op, field, got, want, arrow.ErrInvalid)
}

// New returns an error that wraps err. Strings in got and want are words, not values.
func New(op, field string, got, want any, err error) *Error {
	return &Error{Op: op, Field: field, Got: words(got), Want: words(want), Err: err}
}

// NoRelease returns the error for a struct whose release callback, the field, is NULL.
func NoRelease(op, field string) *Error {
	return New(op, field, "NULL", nil, errNoRelease)
}

var errNoRelease = fmt.Errorf("%w, or never filled", ErrReleased)

// Fields returns the error for a schema with another number of fields than there are columns.
func Fields(op string, fields, columns int) *Error {
	return New(op, "schema", Has(fmt.Sprintf("%s for %s", HowMany(fields, "field"), HowMany(columns, "column"))), nil, arrow.ErrInvalid)
}

func words(v any) any {
	if s, ok := v.(string); ok {
		return Text(s)
	}
	return v
}

// Within prepends the name of the parent to the path of an Error.
func Within(parent string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.Field = parent + "." + e.Field
	}
	return err
}

// During sets the operation of an Error from code that several operations share.
func During(op string, err error) error {
	if err == nil {
		return nil // without the allocation of e
	}
	var e *Error
	if errors.As(err, &e) {
		e.Op = op
	}
	return err
}

// Child returns the name of child i in paths.
func Child(i int) string { return fmt.Sprintf("children[%d]", i) }

// Describe returns a data type in words, shortened for an error. Other values are returned as words.
func Describe(what any) any {
	if dt, ok := what.(arrow.DataType); ok {
		return Type(dt)
	}
	return what
}
