// Package fielderr defines the error about a field of a struct: its path, what it holds, and what
// it should hold. Packages below cdevice return it in place of cdevice.FieldError: errors.As
// converts it to that type.
package fielderr

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

// ErrReleased is wrapped by errors about a struct whose release callback is NULL: it was released,
// or moved.
var ErrReleased = fmt.Errorf("%w: already released", arrow.ErrInvalid)

// Text is a Got or Want in words. It is printed without quotes, unlike a string.
type Text string

// The maximum number of bytes of each part that an error prints: enough for our own words and some
// input, and for a path as deep as trees may be.
const (
	longest     = 1000
	longestPath = 4000
)

// Has is a Got that makes a sentence of the field: "schema has 2 fields for 3 columns".
type Has string

// NULL is the Got of a pointer that should not be NULL.
const NULL Text = "NULL"

// Error reports that a field of a C struct, or of the Go value that one is made of,
// is not what it should be.
type Error struct {
	Op    string // the operation: OpImport, OpExport, or another of cdevice; of another package with its name, "dlpack: export"
	Field string // the path to the field, such as "ArrowSchema.children[2].format"
	Got   any    // what the field holds; nil if it is not printed
	Want  any    // what it should hold; nil if it is not printed
	Err   error  // the cause, such as an error that wraps arrow.ErrInvalid
}

// Error returns the text, which quotes at most 100 bytes of a string in Got or Want:
//
//	cdevice: import: ArrowSchema.children[2].format = "w3", want "w:<bytes>": invalid
func (e *Error) Error() string {
	var b strings.Builder
	if !strings.Contains(e.Op, ":") {
		b.WriteString("cdevice: ")
	}
	b.WriteString(e.Op)
	b.WriteString(": ")
	b.WriteString(excerpt.Cut(e.Field, longestPath))
	switch got := e.Got.(type) {
	case nil:
	case Has:
		b.WriteString(" has ")
		b.WriteString(excerpt.Cut(string(got), longest))
	default:
		b.WriteString(" = ")
		b.WriteString(text(got))
	}
	if e.Want != nil {
		b.WriteString(", want ")
		b.WriteString(text(e.Want))
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(excerpt.Cut(e.Err.Error(), longest))
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// As stores e in *target if that is a pointer to a type with the same fields, which
// cdevice.FieldError is. errors.As calls it.
func (e *Error) As(target any) bool {
	found, pointer := reflect.ValueOf(e), reflect.ValueOf(target).Elem()
	if pointer.Kind() != reflect.Pointer || !found.CanConvert(pointer.Type()) {
		return false
	}
	pointer.Set(found.Convert(pointer.Type()))
	return true
}

// text prints a Got or Want, up to a maximum length. A string is input: it is quoted, so that an
// empty one and one with unprintable bytes can be read.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return excerpt.Quote(v)
	case Text:
		return excerpt.Cut(string(v), longest)
	case arrow.DataType:
		return string(Type(v))
	case *arrow.Schema:
		return string(Schema(v))
	}
	return excerpt.Cut(fmt.Sprint(v), longest)
}
