package schema

import (
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/argument"
)

// A schema of arrow-go does not change, but its types can: they have exported fields and setters, a program can assign
// another type to *t, unions keep the slices that they were made of, and metadata returns its own. A cache that answers
// for a schema compares that memory with a copy.

// States has the memory of types, and of metadata, that a program can change, as it was.
type States []state

// state is memory, and a copy of it. The copy keeps alive what it points to, so that nothing else has these addresses.
type state struct {
	now, was unsafe.Pointer
	size     uintptr
}

// Same reports whether nothing has changed.
func (s States) Same() bool {
	for i := range s {
		m := &s[i]
		if unsafe.String((*byte)(m.now), m.size) != unsafe.String((*byte)(m.was), m.size) {
			return false
		}
	}
	return true
}

// Add adds a type of arrow-go, without those below it. An extension type is one of the program: nothing is added.
func (s *States) Add(dt arrow.DataType) {
	switch t := dt.(type) {
	case *arrow.FixedSizeBinaryType:
		watch(s, t)
	case *arrow.TimestampType:
		watch(s, t)
	case *arrow.Time32Type:
		watch(s, t)
	case *arrow.Time64Type:
		watch(s, t)
	case *arrow.DurationType:
		watch(s, t)
	case *arrow.Decimal32Type:
		watch(s, t)
	case *arrow.Decimal64Type:
		watch(s, t)
	case *arrow.Decimal128Type:
		watch(s, t)
	case *arrow.Decimal256Type:
		watch(s, t)
	case *arrow.DictionaryType:
		watch(s, t)
	case *arrow.RunEndEncodedType:
		watch(s, t)
	case *arrow.ListType:
		watch(s, t)
	case *arrow.LargeListType:
		watch(s, t)
	case *arrow.ListViewType:
		watch(s, t)
	case *arrow.LargeListViewType:
		watch(s, t)
	case *arrow.FixedSizeListType:
		watch(s, t)
	case *arrow.MapType:
		watch(s, t)
	case *arrow.StructType: // whose fields a setter of a map changes
		watchFields(s, unsafe.Pointer(t))
	case *arrow.SparseUnionType:
		watchFields(s, unsafe.Pointer(t))
		watchSlice(s, t.TypeCodes())
	case *arrow.DenseUnionType:
		watchFields(s, unsafe.Pointer(t))
		watchSlice(s, t.TypeCodes())
	}
}

// addSchema adds what is below a schema. It reports false if a type is of the program.
func (s *States) addSchema(sc *arrow.Schema) bool {
	s.addMetadata(sc.Metadata())
	for i := range sc.NumFields() {
		if !s.addField(sc.Field(i)) {
			return false
		}
	}
	return true
}

func (s *States) addField(f arrow.Field) bool {
	s.addMetadata(f.Metadata)
	return s.addTree(f.Type)
}

func (s *States) addMetadata(md arrow.Metadata) {
	watchSlice(s, md.Keys())
	watchSlice(s, md.Values())
}

// addTree adds a type and those below it. It reports false if one of them is of the program.
func (s *States) addTree(dt arrow.DataType) bool {
	if argument.IsNil(dt) {
		return false
	}
	s.Add(dt)
	switch t := dt.(type) {
	case arrow.ExtensionType:
		return false
	case *arrow.DictionaryType:
		return s.addTree(t.IndexType) && s.addTree(t.ValueType)
	case arrow.NestedType:
		for _, f := range t.Fields() {
			if !s.addField(f) {
				return false
			}
		}
	}
	return true
}

func watch[T any](s *States, t *T) {
	was := new(T)
	*was = *t
	*s = append(*s, state{unsafe.Pointer(t), unsafe.Pointer(was), unsafe.Sizeof(*t)})
}

func watchSlice[E any](s *States, of []E) {
	if len(of) > 0 {
		var e E
		*s = append(*s, state{unsafe.Pointer(&of[0]), unsafe.Pointer(&slices.Clone(of)[0]), uintptr(len(of)) * unsafe.Sizeof(e)})
	}
}

// watchFields adds the fields of a struct or union type, whose first member they are: arrow-go returns copies of them.
func watchFields(s *States, t unsafe.Pointer) {
	fields := (*[]arrow.Field)(t)
	watch(s, fields)
	watchSlice(s, *fields)
}
