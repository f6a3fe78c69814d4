package schema

import (
	"encoding/binary"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// A producer sends the same schema with each of its batches, so that ImportSchema compares a tree
// with one that it read before, and returns the same *arrow.Schema where they are equal in all that
// was read. The comparison follows the tree that was read, so that the limits hold for it. All
// structs are looked at in each import: a producer may change them, or send others at the same
// addresses.
//
// Trees with extension types are not kept: what an import returns for them depends on what is
// registered, and on code of the program.

// known is a tree that was read, and the result.
type known struct {
	nodes     []knownNode // each followed by its children and its dictionary
	cost      int
	extension bool
	schema    *arrow.Schema
	was       arrow.Schema // *schema, to which a program can assign another one
	states    States
}

// knownNode is one struct. A name that is NULL is "".
type knownNode struct {
	format, name string
	metadata     string // as in C, "" for NULL
	flags        int64
	children     int64
	dictionary   bool
}

var knownSchemas cache[known]

// add appends a struct, before what is below it. It takes what the reader made of it, and does not
// read it again, so that the result belongs to the nodes even if the producer changed the tree.
func (k *known) add(s *abi.ArrowSchema, format, name string, md *arrow.Metadata) {
	if k == nil {
		return
	}
	n := knownNode{format: format, name: name, flags: s.Flags, children: s.NChildren, dictionary: s.Dictionary != 0}
	if s.Metadata != 0 {
		n.metadata = string(pairsOf(*md).appendTo(nil))
	}
	k.nodes = append(k.nodes, n)
	k.cost += 1 + (len(format)+len(name)+len(n.metadata))/textCost
	k.extension = k.extension || strings.Contains(n.metadata, extensionName)
}

// keep sets the result. It reports false for one that depends on more than the nodes.
func (k *known) keep(s *arrow.Schema) bool {
	if k.extension || k.cost > maxCost/2 || !k.states.addSchema(s) {
		return false
	}
	k.schema, k.was = s, *s
	return true
}

// knownSchema reads a schema, or finds it in the cache.
func (r *reader) knownSchema(s *abi.ArrowSchema) (*arrow.Schema, error) {
	key := uint64(0)
	if r.whole {
		key = sampleKey(s)
	}
	if key == 0 {
		return r.schema(s)
	}
	found := knownSchemas.find(key)
	if found != nil && found.value.schema != nil {
		m := matcher{nodes: found.value.nodes}
		if m.equal(s, true) && Same(found.value.schema, &found.value.was) && found.value.states.Same() {
			return found.value.schema, nil
		}
		found = nil // to be replaced
	}
	if found == nil && knownSchemas.again(key) {
		r.known = new(known)
	}
	result, err := r.schema(s)
	if err == nil && r.known != nil {
		e := &cached[known]{key: key, cost: 1}
		if r.known.keep(result) {
			e.cost, e.value = r.known.cost, *r.known
		}
		knownSchemas.put(e) // without a result, it tells the next import not to try
	}
	return result, err
}

// matcher compares structs with nodes.
type matcher struct {
	nodes []knownNode // those that are left
}

// equal compares a struct and all below it. The name of the root is not read.
func (m *matcher) equal(s *abi.ArrowSchema, root bool) bool {
	n := &m.nodes[0]
	m.nodes = m.nodes[1:]
	if s.Flags != n.flags || s.NChildren != n.children || s.Dictionary != 0 != n.dictionary {
		return false
	}
	if s.Format == 0 || !sameText(s.Format, n.format) || !root && !sameName(s.Name, n.name) || !sameEncoded(s.Metadata, n.metadata) {
		return false
	}
	if n.children > 0 {
		if s.Children == 0 {
			return false
		}
		for _, child := range abi.Slice[uintptr](s.Children, int(n.children)) {
			if !m.below(child) {
				return false
			}
		}
	}
	return !n.dictionary || m.below(s.Dictionary)
}

func (m *matcher) below(addr uintptr) bool {
	if addr == 0 {
		return false
	}
	s := abi.At[abi.ArrowSchema](addr)
	return s.Release != 0 && m.equal(s, false)
}

func sameName(addr uintptr, name string) bool {
	if addr == 0 {
		return name == ""
	}
	return sameText(addr, name)
}

// sameText reports whether the NUL-terminated string at an address is text. It reads no byte behind
// the first one that differs, so none behind the NUL.
func sameText(addr uintptr, text string) bool {
	p := abi.Pointer(addr)
	for i := range len(text) {
		if *(*byte)(unsafe.Add(p, i)) != text[i] {
			return false
		}
	}
	return *(*byte)(unsafe.Add(p, len(text))) == 0
}

// sameEncoded reports whether the metadata at an address has the encoding. A length is compared
// before the bytes that it announces are read.
func sameEncoded(addr uintptr, encoded string) bool {
	if addr == 0 || encoded == "" {
		return addr == 0 && encoded == ""
	}
	if string(abi.Slice[byte](addr, 4)) != encoded[:4] { // the number of pairs
		return false
	}
	for at := 4; at < len(encoded); {
		length := encoded[at : at+4]
		if string(abi.Slice[byte](addr+uintptr(at), 4)) != length {
			return false
		}
		at += 4
		n := int(binary.NativeEndian.Uint32([]byte(length)))
		if string(abi.Slice[byte](addr+uintptr(at), n)) != encoded[at:at+n] {
			return false
		}
		at += n
	}
	return true
}

// sampleKey returns a key from a few of the children of a root that checkSize found to be whole; 0
// for a tree that is not for the cache.
func sampleKey(s *abi.ArrowSchema) uint64 {
	n := int(s.NChildren)
	if n == 0 {
		return 0
	}
	h := hash(hash(hashStart, uint64(n)), uint64(s.Flags))
	children := abi.Slice[uintptr](s.Children, n)
	for _, i := range [...]int{0, n / 2, n - 1} {
		child := abi.At[abi.ArrowSchema](children[i])
		h = hash(h, sampleText(child.Format))
		h = hash(h, sampleText(child.Name))
	}
	return h | 1
}

// sampleText returns the first bytes of a NUL-terminated string as a number.
func sampleText(addr uintptr) (sample uint64) {
	if addr == 0 {
		return 0
	}
	p := abi.Pointer(addr)
	for i := range 12 {
		b := *(*byte)(unsafe.Add(p, i))
		if b == 0 {
			break
		}
		sample = sample<<8 ^ sample>>56 ^ uint64(b)
	}
	return sample
}
