package schema

import (
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/excerpt"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Import reads the field that s describes. Nothing of the result points into C
// memory. The release callback of s is called once, at the end; those of its children are left to it.
//
// It takes ownership of *s, even if it returns an error. For a nil pointer, or a struct that is
// already released, it returns an error and calls nothing. An error wraps arrow.ErrInvalid for what
// the C data interface forbids and arrow.ErrNotImplemented for what arrow-go has no type for.
//
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowschema-structure
func Import(s *abi.ArrowSchema) (arrow.Field, error) {
	return consume(s, func(r *reader) (arrow.Field, error) { return r.field(s, 0) })
}

// ImportSchema reads the schema that s, a struct, describes. It is otherwise
// like Import. For a tree that is equal to one that was imported before, it may return the same schema.
//
// It takes ownership of *s, even if it returns an error.
func ImportSchema(s *abi.ArrowSchema) (*arrow.Schema, error) {
	return consume(s, func(r *reader) (*arrow.Schema, error) { return r.knownSchema(s) })
}

// release is a variable for tests, which count the calls and overwrite the memory that must not be
// read any more.
var release = bridge.CallSchemaRelease

func consume[T any](s *abi.ArrowSchema, read func(*reader) (T, error)) (result T, err error) {
	if s == nil {
		return result, finish(fielderr.OpImport, invalid("", fielderr.NULL, fielderr.Text("a struct")))
	}
	if s.Release == 0 {
		return result, finish(fielderr.OpImport, released())
	}
	defer release(s)
	whole, err := checkSize(s)
	if err == nil {
		result, err = read(&reader{nodes: maxNodes - 1, text: maxText, whole: whole})
	}
	return result, finish(fielderr.OpImport, err)
}

func released() error {
	return &fielderr.Error{Field: ".release", Got: fielderr.NULL, Err: fielderr.ErrReleased}
}

// reader holds the remaining limits of one tree.
type reader struct {
	nodes int    // structs
	text  int    // bytes of formats, names and metadata
	whole bool   // no pointer to a struct is NULL, and no struct is released
	known *known // takes all that is read, unless nil
}

// field reads one struct and all that is below it. It checks every pointer and count before it
// follows them.
func (r *reader) field(s *abi.ArrowSchema, depth int) (f arrow.Field, err error) {
	text, err := r.string(".format", s.Format)
	if err != nil {
		return f, err
	}
	row, params, err := parse(text)
	if err != nil {
		return f, err
	}
	if row.children != anyNumber && s.NChildren != int64(row.children) {
		return f, invalid(".n_children", s.NChildren, fielderr.Text(fmt.Sprintf("%d for format %s", row.children, excerpt.Quote(text))))
	}
	if f.Name, err = r.name(s); err != nil {
		return f, err
	}
	md, err := readMetadata(s.Metadata, &r.text)
	if err != nil {
		return f, err
	}
	r.known.add(s, text, f.Name, md)
	children, err := r.children(s, depth)
	if err != nil {
		return f, err
	}
	dt, err := row.build(text, parts{params: params, children: children, flags: s.Flags})
	if err != nil {
		return f, err
	}
	if s.Dictionary != 0 {
		if !arrow.IsInteger(dt.ID()) {
			return f, invalid(".format", text, integerIndices)
		}
		if r.nodes--; r.nodes < 0 {
			return f, invalid(".dictionary", nil, fewStructs)
		}
		values, err := r.below(s.Dictionary, depth)
		if err != nil {
			return f, under(".dictionary", err)
		}
		dt = &arrow.DictionaryType{
			IndexType: dt, ValueType: values.Type, Ordered: s.Flags&abi.FlagDictionaryOrdered != 0,
		}
	}
	f.Nullable = s.Flags&abi.FlagNullable != 0
	f.Type, f.Metadata, err = rebuild(dt, md)
	return f, err
}

// schema reads a struct as a schema. It does not build a struct type, since only the children and
// the metadata of the root are used.
func (r *reader) schema(s *abi.ArrowSchema) (*arrow.Schema, error) {
	text, err := r.string(".format", s.Format)
	if err != nil {
		return nil, err
	}
	if text != "+s" {
		return nil, invalid(".format", text, "+s")
	}
	if s.Dictionary != 0 {
		return nil, invalid(".dictionary", nil, fielderr.NULL)
	}
	md, err := readMetadata(s.Metadata, &r.text)
	if err != nil {
		return nil, err
	}
	r.known.add(s, text, "", md)
	fields, err := r.children(s, 0)
	if err != nil {
		return nil, err
	}
	return arrow.NewSchema(fields, &md), nil
}

// children reads the children of s, which is at the given depth.
func (r *reader) children(s *abi.ArrowSchema, depth int) ([]arrow.Field, error) {
	if s.NChildren < 0 {
		return nil, invalid(".n_children", s.NChildren, fielderr.Text("at least 0"))
	}
	if s.NChildren > int64(r.nodes) {
		return nil, invalid(".n_children", s.NChildren, fewStructs)
	}
	n := int(s.NChildren)
	if n == 0 {
		return nil, nil
	}
	r.nodes -= n // before the slice is made: children that contain s must not multiply it
	if s.Children == 0 {
		return nil, invalid(".children", fielderr.NULL, fielderr.Text(fmt.Sprintf("%d pointers", n)))
	}
	fields := make([]arrow.Field, n)
	for i, child := range abi.Slice[uintptr](s.Children, n) {
		var err error
		if fields[i], err = r.below(child, depth); err != nil {
			return nil, under(fmt.Sprintf(".children[%d]", i), err)
		}
	}
	return fields, nil
}

// below reads a child or dictionary of a struct at the given depth.
func (r *reader) below(addr uintptr, depth int) (f arrow.Field, err error) {
	if addr == 0 {
		return f, invalid("", fielderr.NULL, fielderr.Text("a struct"))
	}
	if depth == maxDepth {
		return f, invalid("", nil, fewLevels)
	}
	s := abi.At[abi.ArrowSchema](addr)
	if s.Release == 0 {
		return f, released()
	}
	return r.field(s, depth+1)
}

func (r *reader) name(s *abi.ArrowSchema) (string, error) {
	if s.Name == 0 {
		return "", nil
	}
	name, err := r.string(".name", s.Name)
	if err == nil && !utf8.ValidString(name) {
		err = invalid(".name", name, fielderr.Text("UTF-8"))
	}
	return name, err
}

// string copies a NUL-terminated string.
func (r *reader) string(field string, addr uintptr) (string, error) {
	if addr == 0 {
		return "", invalid(field, fielderr.NULL, fielderr.Text("a string"))
	}
	size := abi.StringLen(addr, r.text) // the text may have no NUL
	if r.text -= size + 1; r.text < 0 {
		return "", invalid(field, nil, littleText)
	}
	return string(abi.Slice[byte](addr, size)), nil
}
