package schema

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// plan is a tree of ArrowSchema before it is C memory: what to write, and the size of that. The
// methods of a type are called only once, so that the output fits what was measured, even if a
// type's methods are not consistent.
type plan struct {
	nodes    []node // the root, then each node's children and dictionary in one run
	pointers int    // elements of all the arrays of children
	metadata int    // bytes, each struct's rounded up to 4
	text     int    // bytes of all formats and names, with their NULs
}

type node struct {
	format, name string
	metadata     pairs
	flags        int64
	children     int // how many
	first        int // where in the plan they begin
	dictionary   int // where in the plan it is, 0 for none
}

// plans has plans that are used again: that of a large schema would be most of the garbage of an export.
var plans = sync.Pool{New: func() any { return new(plan) }}

// mostNodes bounds what a plan that is not used keeps.
const mostNodes = 4096

// end gives the plan back, without what it planned.
func (p *plan) end() {
	if cap(p.nodes) > mostNodes {
		return
	}
	clear(p.nodes)
	*p = plan{nodes: p.nodes[:0]}
	plans.Put(p)
}

func (p *plan) export(f *arrow.Field) error { return p.add(p.reserve(1), f, 0) }

func (p *plan) exportSchema(s *arrow.Schema) error {
	if s == nil {
		return invalid("", fielderr.Text("nil"), fielderr.Text("a schema"))
	}
	if !s.IsNativeEndian() {
		return unsupported("", fielderr.Text(s.Endianness().String()+" schema"), fielderr.Text("native byte order"))
	}
	p.nodes = slices.Grow(p.nodes, min(1+s.NumFields(), MaxNodes))
	root := shape{format: "+s", metadata: pairsOf(s.Metadata())}
	first, err := p.node(p.reserve(1), "", &root, s.NumFields(), 0)
	if err != nil {
		return err
	}
	for i := range s.NumFields() { // Fields would copy all of them
		f := s.Field(i)
		if err := p.add(first+i, &f, 1); err != nil {
			return underChild(i, err)
		}
	}
	return nil
}

// reserve adds n adjacent nodes and returns the index of the first.
func (p *plan) reserve(n int) (first int) {
	first = len(p.nodes)
	p.nodes = append(p.nodes, make([]node, n)...)
	return first
}

// add plans a field, at a node that is reserved, and all that is below it.
func (p *plan) add(at int, f *arrow.Field, depth int) error {
	var s shape
	if err := describe(f, &s); err != nil {
		return err
	}
	return p.place(at, f.Name, &s, depth)
}

// place sets a reserved node, and plans all that is below it.
func (p *plan) place(at int, name string, s *shape, depth int) error {
	first, err := p.node(at, name, s, len(s.children), depth)
	if err != nil {
		return err
	}
	for i := range s.children {
		if err := p.add(first+i, &s.children[i], depth+1); err != nil {
			return underChild(i, err)
		}
	}
	if s.values != nil {
		// arrow-go does not have the nullability of the values.
		if err := p.add(first+len(s.children), &arrow.Field{Type: s.values, Nullable: true}, depth+1); err != nil {
			return under(".dictionary", err)
		}
	}
	return nil
}

func underChild(i int, err error) error { return under(fmt.Sprintf(".children[%d]", i), err) }

// node sets a reserved node, and reserves those of its children, and behind them that of its dictionary. It returns the
// index of the first one.
func (p *plan) node(at int, name string, s *shape, children, depth int) (first int, err error) {
	if depth > MaxDepth {
		return 0, invalid("", nil, fewLevels)
	}
	if len(p.nodes)+children > MaxNodes {
		return 0, invalid(".n_children", children, fewStructs)
	}
	if strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name) {
		return 0, invalid(".name", name, fielderr.Text("UTF-8 without a NUL"))
	}
	if strings.IndexByte(s.format, 0) >= 0 {
		return 0, invalid(".format", s.format, fielderr.Text("no NUL"))
	}
	if err := s.metadata.check(); err != nil {
		return 0, err
	}
	p.text += len(s.format) + 1 + len(name) + 1
	p.metadata += (s.metadata.size() + 3) &^ 3
	if p.text+p.metadata > maxText {
		return 0, invalid("", nil, littleText)
	}
	first = p.reserve(children)
	p.pointers += children
	n := &p.nodes[at]
	n.format, n.name, n.flags, n.children, n.first = s.format, name, s.flags, children, first
	if len(s.metadata.keys) > 0 { // most have none
		n.metadata = s.metadata
	}
	if s.values != nil {
		if n.dictionary = first + children; n.dictionary >= MaxNodes {
			return 0, invalid(".dictionary", nil, fewStructs)
		}
		p.reserve(1)
	}
	return first, nil
}

// shape holds the contents of a field's own ArrowSchema.
type shape struct {
	format   string
	flags    int64
	metadata pairs
	children []arrow.Field
	values   arrow.DataType // of a dictionary, or nil
}

// describe sets *s, which is zero. It calls all methods of a field's type that an export needs. No other function of an export
// does: the methods of an extension type are a program's, and those of some of arrow-go's types
// panic for the zero value.
func describe(f *arrow.Field, s *shape) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &fielderr.Error{
				Field: ".format", Got: fielderr.Text(fmt.Sprintf("%T", f.Type)),
				Err: fmt.Errorf("%w: the type panics: %v", arrow.ErrInvalid, v),
			}
		}
	}()
	dt := f.Type
	if f.Metadata.Len() > 0 {
		s.metadata = pairsOf(f.Metadata)
	}
	if f.Nullable {
		s.flags |= abi.FlagNullable
	}
	if argument.IsNil(dt) {
		return invalid(".format", fielderr.Text("nil"), fielderr.Text("a type"))
	}
	if row := leafOf(dt); row != nil {
		s.format = row.text
		return nil
	}
	if ext, ok := dt.(arrow.ExtensionType); ok {
		dt = ext.StorageType()
		if argument.IsNil(dt) {
			return invalid(".format", fielderr.Text(fmt.Sprintf("%T without storage", ext)), fielderr.Text("a type"))
		}
		if _, ok := dt.(arrow.ExtensionType); ok {
			return unsupported(".format", fielderr.Text(fmt.Sprintf("%T over %T", ext, dt)),
				fielderr.Text("storage that is not an extension type itself"))
		}
		s.metadata = s.metadata.withExtension(ext.ExtensionName(), ext.Serialize())
	}
	if dict, ok := dt.(*arrow.DictionaryType); ok {
		if argument.IsNil(dict.ValueType) {
			return invalid(".dictionary.format", fielderr.Text("nil"), fielderr.Text("a type"))
		}
		if argument.IsNil(dict.IndexType) || !arrow.IsInteger(dict.IndexType.ID()) {
			return invalid(".format", fielderr.Text(fmt.Sprintf("%T", dict.IndexType)), integerIndices)
		}
		if dict.Ordered {
			s.flags |= abi.FlagDictionaryOrdered
		}
		s.values = dict.ValueType
		dt = dict.IndexType
	}
	if m, ok := dt.(*arrow.MapType); ok && m.KeysSorted {
		s.flags |= abi.FlagMapKeysSorted
	}
	row, err := formatOf(dt)
	if err != nil {
		return err
	}
	var params string
	if row.write != nil {
		params = row.write(dt)
	}
	s.format = row.text + params
	if row.children != 0 {
		s.children = dt.(arrow.NestedType).Fields()
	}
	if row.reread {
		_, err = row.build(s.format, parts{params: params, children: s.children, flags: s.flags})
	}
	return err
}

// write allocates the tree and fills it. The structs below the root come first
// in the block, then the arrays of children, the metadata, and the strings.
func (p *plan) write(out *abi.ArrowSchema) error {
	if out == nil {
		return invalid("", fielderr.NULL, fielderr.Text("memory for a struct"))
	}
	structs := int(bridge.BlockSize)
	pointers := structs + (len(p.nodes)-1)*structSize
	metadata := pointers + p.pointers*pointerSize
	text := metadata + p.metadata

	block, err := newBlock(text+p.text, len(p.nodes))
	if err != nil {
		return err
	}
	base := uintptr(unsafe.Pointer(block))
	addrOf := func(i int) uintptr { return base + uintptr(structs+(i-1)*structSize) }
	at := cursors{pointers: base + uintptr(pointers), metadata: base + uintptr(metadata), text: base + uintptr(text)}

	for i := range p.nodes {
		n := &p.nodes[i]
		s := abi.ArrowSchema{
			Format:      at.putText(n.format),
			Name:        at.putText(n.name),
			Metadata:    at.putMetadata(&n.metadata),
			Flags:       n.flags,
			NChildren:   int64(n.children),
			Release:     bridge.ReleaseSchema,
			PrivateData: base,
		}
		if n.children > 0 {
			s.Children = at.pointers
			for j := range n.children {
				at.putPointer(addrOf(n.first + j))
			}
		}
		if n.dictionary != 0 {
			s.Dictionary = addrOf(n.dictionary)
		}
		if i == 0 {
			*out = s
		} else {
			*abi.At[abi.ArrowSchema](addrOf(i)) = s
		}
	}
	return nil
}

// cursors are the addresses of the next free bytes in a block. The put functions advance them; the
// plan ensures that the contents fit.
type cursors struct{ pointers, metadata, text uintptr }

func (c *cursors) putPointer(p uintptr) {
	*abi.At[uintptr](c.pointers) = p
	c.pointers += unsafe.Sizeof(p)
}

func (c *cursors) putText(s string) (addr uintptr) {
	addr = c.text
	b := abi.Slice[byte](addr, len(s)+1)
	copy(b, s)
	b[len(s)] = 0
	c.text += uintptr(len(b))
	return addr
}

func (c *cursors) putMetadata(p *pairs) (addr uintptr) {
	n := p.size()
	if n == 0 {
		return 0
	}
	addr = c.metadata
	b := p.appendTo(abi.Slice[byte](addr, (n+3)&^3)[:0])
	for len(b) < cap(b) {
		b = append(b, 0) // a template copies the padding, too
	}
	c.metadata += uintptr(cap(b))
	return addr
}
