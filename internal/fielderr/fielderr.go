// Package fielderr defines the error about a field of a struct: its path, what it holds,
// and what it should hold. It is cdevice.FieldError for the packages below cdevice:
// errors.As finds that type wherever this one is in a chain of errors.
package fielderr

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

// ErrReleased is the kind of error for a struct whose release callback is NULL:
// it was released, or moved.
var ErrReleased = fmt.Errorf("%w: already released", arrow.ErrInvalid)

// Text is a Got or Want in words, which is printed without the quotes that a
// string gets.
type Text string

// How many bytes of each part an error prints: words of ours beside a little input, and a path
// as deep as trees may be.
const (
	longest     = 1000
	longestPath = 4000
)

// NULL is the Got of a pointer that should not be NULL.
const NULL Text = "NULL"

// Error reports that a field of a C struct, or of the Go value that one is made of,
// is not what it should be.
type Error struct {
	Op    string // what was being done: OpImport, OpExport, or another of cdevice's operations
	Field string // the path to the field, such as "ArrowSchema.children[2].format"
	Got   any    // what the field held; nil leaves it out
	Want  any    // what it should have held; nil leaves it out
	Err   error  // the kind of error, such as one that wraps arrow.ErrInvalid
}

// Error prints the fields, with at most 100 bytes of a string that Got or Want is:
//
//	cdevice: import: ArrowSchema.children[2].format = "w3", want "w:<bytes>": invalid
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("cdevice: ")
	b.WriteString(e.Op)
	b.WriteString(": ")
	b.WriteString(excerpt.Cut(e.Field, longestPath))
	if e.Got != nil {
		b.WriteString(" = ")
		b.WriteString(text(e.Got))
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

// Unwrap returns the kind of error, for errors.Is.
func (e *Error) Unwrap() error { return e.Err }

// As sets the pointer that target points to to e, if it is one to a type with the same fields:
// cdevice.FieldError. errors.As calls it.
func (e *Error) As(target any) bool {
	found, pointer := reflect.ValueOf(e), reflect.ValueOf(target).Elem()
	if pointer.Kind() != reflect.Pointer || !found.CanConvert(pointer.Type()) {
		return false
	}
	pointer.Set(found.Convert(pointer.Type()))
	return true
}

// text prints a Got or Want. A string is input: it is quoted, so that an empty one and one
// with odd bytes can be read. Nothing is printed at any length.
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
