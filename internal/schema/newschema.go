package schema

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/endian"
)

// newSchema is arrow.NewSchema for new fields and metadata, which it takes. It does not copy them, and the slices of the
// index are parts of one: in arrow-go, both take more than half of the time of an import.
func newSchema(fields []arrow.Field, md arrow.Metadata) *arrow.Schema {
	if layoutIsKnown() {
		if s := indexed(fields, md); s != nil {
			return s
		}
	}
	return arrow.NewSchema(fields, &md)
}

// schemaLayout is the memory of an arrow.Schema.
type schemaLayout struct {
	fields     []arrow.Field
	index      map[string][]int
	meta       arrow.Metadata
	endianness endian.Endianness
}

// layoutIsKnown reports whether arrow-go's schemas are as indexed makes them: a program may have a later version of it.
var layoutIsKnown = sync.OnceValue(func() bool {
	theirs, ours := reflect.TypeFor[arrow.Schema](), reflect.TypeFor[schemaLayout]()
	if theirs.NumField() != ours.NumField() {
		return false
	}
	for i := range ours.NumField() {
		if a, b := theirs.Field(i), ours.Field(i); a.Name != b.Name || a.Type != b.Type {
			return false
		}
	}
	fields := []arrow.Field{{Name: "a", Type: arrow.Null}, {Name: "b", Type: arrow.Null}}
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	return reflect.DeepEqual(indexed(fields, md), arrow.NewSchema(fields, &md))
})

// indexed returns a schema, or nil if two fields have one name.
func indexed(fields []arrow.Field, md arrow.Metadata) *arrow.Schema {
	s := &schemaLayout{fields, make(map[string][]int, len(fields)), md, endian.NativeEndian}
	places := make([]int, len(fields))
	for i := range fields {
		places[i] = i
		if s.index[fields[i].Name] = places[i : i+1 : i+1]; len(s.index) <= i {
			return nil
		}
	}
	return (*arrow.Schema)(unsafe.Pointer(s))
}
