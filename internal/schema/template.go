package schema

import (
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// A program exports the same *arrow.Schema with each of its batches. From the second time on,
// ExportSchema copies the block that it made before, and moves the addresses in it to the new place.
//
// Schemas with extension types are not kept: their names and parameters come from code of the
// program.

// template is a block that was exported, with addresses that count from its beginning. No address in
// it is zero but NULL: the head of a block is there.
type template struct {
	// schema is a copy, which keeps alive what it points to. The fields of a schema do not change, so
	// another schema with the same pointers has the same ones. states has what can change below.
	schema   arrow.Schema
	states   States
	refused  bool // there is nothing but the schema, for which no template is to be made
	root     abi.ArrowSchema
	structs  []abi.ArrowSchema // below the root
	pointers []uintptr         // the arrays of children
	rest     []byte            // metadata and text
}

var templates cache[template]

// addressKey returns the key of a schema. Its object may be freed, and another be made there.
func addressKey(s *arrow.Schema) uint64 {
	return hash(hashStart, uint64(uintptr(unsafe.Pointer(s)))) | 1<<32
}

// isOf reports whether an export of s is the same as that of the template.
func (t *template) isOf(s *arrow.Schema) bool {
	return !t.refused && Same(s, &t.schema) && t.states.Same()
}

// refuses reports whether a template of s was found to be impossible.
func (t *template) refuses(s *arrow.Schema) bool {
	return t.refused && Same(s, &t.schema)
}

// Same reports whether two schemas are the same in memory, pointers and lengths, so that they are
// equal. A program can change a schema only by an assignment of another one.
func Same(a, b *arrow.Schema) bool {
	type words [unsafe.Sizeof(arrow.Schema{}) / unsafe.Sizeof(uintptr(0))]uintptr
	return *(*words)(unsafe.Pointer(a)) == *(*words)(unsafe.Pointer(b))
}

// keep makes a template of a tree that was just exported to root, before it is released.
func (p *plan) keep(key uint64, s *arrow.Schema, root *abi.ArrowSchema) {
	size := p.text + p.metadata
	cost := len(p.nodes) + size/textCost
	if cost > maxCost/2 {
		return
	}
	t := template{schema: *s, root: *root}
	if !t.states.addSchema(s) {
		t = template{schema: *s, refused: true}
		templates.put(&cached[template]{key: key, cost: cost, value: t})
		return
	}
	base := root.PrivateData
	at := base + bridge.BlockSize
	t.structs = slices.Clone(abi.Slice[abi.ArrowSchema](at, len(p.nodes)-1))
	at += uintptr(len(t.structs) * structSize)
	t.pointers = slices.Clone(abi.Slice[uintptr](at, p.pointers))
	at += uintptr(len(t.pointers) * pointerSize)
	t.rest = slices.Clone(abi.Slice[byte](at, size))

	t.root = moved(&t.root, -base)
	for i := range t.structs {
		t.structs[i] = moved(&t.structs[i], -base)
	}
	for i := range t.pointers {
		t.pointers[i] -= base
	}
	templates.put(&cached[template]{key: key, cost: cost, value: t})
}

// write is plan.write for a template.
func (t *template) write(out *abi.ArrowSchema) error {
	size := int(bridge.BlockSize) + len(t.structs)*structSize + len(t.pointers)*pointerSize + len(t.rest)
	block, err := newBlock(size, len(t.structs)+1)
	if err != nil {
		return err
	}
	base := uintptr(unsafe.Pointer(block))
	at := base + bridge.BlockSize
	structs := abi.Slice[abi.ArrowSchema](at, len(t.structs))
	for i := range structs {
		structs[i] = moved(&t.structs[i], base)
	}
	at += uintptr(len(t.structs) * structSize)
	pointers := abi.Slice[uintptr](at, len(t.pointers))
	for i := range pointers {
		pointers[i] = t.pointers[i] + base
	}
	at += uintptr(len(t.pointers) * pointerSize)
	copy(abi.Slice[byte](at, len(t.rest)), t.rest)
	*out = moved(&t.root, base)
	return nil
}

// moved returns a struct of this library with its addresses in a block moved.
func moved(s *abi.ArrowSchema, by uintptr) abi.ArrowSchema {
	m := *s
	m.Format += by
	m.Name += by
	m.PrivateData += by
	if m.Metadata != 0 {
		m.Metadata += by
	}
	if m.Children != 0 {
		m.Children += by
	}
	if m.Dictionary != 0 {
		m.Dictionary += by
	}
	return m
}
