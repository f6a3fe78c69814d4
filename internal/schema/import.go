package schema

import (
	"fmt"
	"unicode/utf8"
	"unsafe"

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
	return consume(s, func(r *reader) (f arrow.Field, err error) {
		err = r.field(s, 0, &f)
		return f, err
	})
}

// ImportSchema reads the schema that s, a struct, describes. It is otherwise
// like Import. For a tree that is equal to one that was imported before, it may return the same schema.
//
// It takes ownership of *s, even if it returns an error.
func ImportSchema(s *abi.ArrowSchema) (*arrow.Schema, error) {
	return consume(s, func(r *reader) (*arrow.Schema, error) { return r.knownSchema(s) })
}

// ImportAsStorage is Import without extension types: a field has the type of the storage, and the name and the
// parameters of the extension are in its metadata.
func ImportAsStorage(s *abi.ArrowSchema) (arrow.Field, error) {
	return consume(s, func(r *reader) (f arrow.Field, err error) {
		r.storage = true
		err = r.field(s, 0, &f)
		return f, err
	})
}

// ImportSchemaAsStorage is ImportSchema without extension types; see ImportAsStorage.
func ImportSchemaAsStorage(s *abi.ArrowSchema) (*arrow.Schema, error) {
	return consume(s, func(r *reader) (*arrow.Schema, error) {
		r.storage = true
		return r.knownSchema(s)
	})
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
		result, err = read(&reader{nodes: MaxNodes - 1, text: maxText, whole: whole})
	}
	return result, finish(fielderr.OpImport, err)
}

func released() error {
	return fielderr.NoRelease("", ".release")
}

// reader holds the remaining limits of one tree.
type reader struct {
	nodes int    // structs
	text  int    // bytes of formats, names and metadata
	whole bool   // no pointer to a struct is NULL, and no struct is released
	known *known // takes all that is read, unless nil
	// storage leaves extension types in the metadata. The cache needs no mark of it: it keeps no extension types.
	storage bool

	chunk      []byte // of strings; what is written is not changed
	nodesBelow int    // structs that were announced and not read yet
}

// field reads one struct and all that is below it to *f, which is zero. It checks every pointer and count
// before it follows them. (A field is large: a copy for each function on the way took longer than the
// checks.)
func (r *reader) field(s *abi.ArrowSchema, depth int, f *arrow.Field) error {
	text, params, row, err := r.format(s.Format)
	if err != nil {
		return err
	}
	if row.children != anyNumber && s.NChildren != int64(row.children) {
		return invalid(".n_children", s.NChildren, fielderr.Text(fmt.Sprintf("%d for format %s", row.children, excerpt.Quote(text))))
	}
	if f.Name, err = r.name(s); err != nil {
		return err
	}
	if s.Metadata != 0 {
		if f.Metadata, err = readMetadata(s.Metadata, &r.text); err != nil {
			return err
		}
	}
	r.known.add(s, text, f.Name, &f.Metadata)
	if f.Type = row.leaf; f.Type == nil {
		children, err := r.children(s, depth)
		if err != nil {
			return err
		}
		if f.Type, err = row.build(text, parts{params: params, children: children, flags: s.Flags}); err != nil {
			return err
		}
	}
	if s.Dictionary != 0 {
		if err := r.dictionary(s, text, depth, f); err != nil {
			return err
		}
	}
	f.Nullable = s.Flags&abi.FlagNullable != 0
	if s.Metadata != 0 && !r.storage {
		f.Type, f.Metadata, err = rebuild(f.Type, f.Metadata)
	}
	return err
}

// dictionary makes the type of *f, which is that of the indices, dictionary encoded.
func (r *reader) dictionary(s *abi.ArrowSchema, format string, depth int, f *arrow.Field) error {
	if !arrow.IsInteger(f.Type.ID()) {
		return invalid(".format", format, integerIndices)
	}
	if r.nodes--; r.nodes < 0 {
		return invalid(".dictionary", nil, fewStructs)
	}
	var values arrow.Field
	if err := r.below(s.Dictionary, depth, &values); err != nil {
		return under(".dictionary", err)
	}
	f.Type = &arrow.DictionaryType{
		IndexType: f.Type, ValueType: values.Type, Ordered: s.Flags&abi.FlagDictionaryOrdered != 0,
	}
	return nil
}

// schema reads a struct as a schema. It does not build a struct type, since only the children and
// the metadata of the root are used.
func (r *reader) schema(s *abi.ArrowSchema) (*arrow.Schema, error) {
	text, err := r.string(".format", s.Format)
	if err != nil {
		return nil, err
	}
	if text != "+s" {
		return nil, &fielderr.Error{Field: ".format", Got: text, Want: "+s", Err: errNoColumns}
	}
	if s.Dictionary != 0 {
		return nil, invalid(".dictionary", nil, fielderr.NULL)
	}
	md, err := readMetadata(s.Metadata, &r.text)
	if err != nil {
		return nil, err
	}
	r.known.add(s, text, "", &md)
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
	r.nodesBelow += n
	r.nodes -= n // before the slice is made: children that contain s must not multiply it
	if s.Children == 0 {
		return nil, invalid(".children", fielderr.NULL, fielderr.Text(fmt.Sprintf("%d pointers", n)))
	}
	fields := make([]arrow.Field, n)
	for i, child := range abi.Slice[uintptr](s.Children, n) {
		r.nodesBelow--
		if err := r.below(child, depth, &fields[i]); err != nil {
			return nil, under(fmt.Sprintf(".children[%d]", i), err)
		}
	}
	return fields, nil
}

// below reads a child or dictionary of a struct at the given depth to *f.
func (r *reader) below(addr uintptr, depth int, f *arrow.Field) error {
	if addr == 0 {
		return invalid("", fielderr.NULL, fielderr.Text("a struct"))
	}
	if depth == MaxDepth {
		return invalid("", nil, fewLevels)
	}
	s := abi.At[abi.ArrowSchema](addr)
	if s.Release == 0 {
		return released()
	}
	return r.field(s, depth+1, f)
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
	b, err := r.bytes(field, addr)
	return r.copy(b), err
}

// format reads a format, and returns its row and the parameters in it. One without parameters is in the table already.
func (r *reader) format(addr uintptr) (text, params string, row *format, err error) {
	b, err := r.bytes(".format", addr)
	if err != nil {
		return "", "", nil, err
	}
	if row := byText[string(b)]; row != nil {
		return row.text, "", row, nil
	}
	text = string(b)
	row, params, err = parse(text)
	return text, params, row, err
}

// bytes returns a NUL-terminated string in C memory.
func (r *reader) bytes(field string, addr uintptr) ([]byte, error) {
	if addr == 0 {
		return nil, invalid(field, fielderr.NULL, fielderr.Text("a string"))
	}
	size := abi.StringLen(addr, r.text) // the text may have no NUL
	if r.text -= size + 1; r.text < 0 {
		return nil, invalid(field, nil, littleText)
	}
	return abi.Slice[byte](addr, size), nil
}

// Strings are cut from larger ones, so that a tree does not take an allocation for each name. A
// string that outlives the others keeps at most a chunk.
const (
	chunkSize   = 2048
	usualLength = 12 // of names
)

// copy returns a string with the bytes.
func (r *reader) copy(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if cap(r.chunk)-len(r.chunk) < len(b) {
		r.chunk = make([]byte, 0, max(len(b), min(chunkSize, usualLength*(r.nodesBelow+1))))
	}
	from := len(r.chunk)
	r.chunk = append(r.chunk, b...)
	return unsafe.String(&r.chunk[from], len(b))
}
