package cdevice

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// node is one array of a tree: an ArrowArray in Go memory, with its type. Nodes
// are immutable, and live in one slice per tree in which siblings are
// neighbours; slicing and column selection copy the nodes they change and share
// the rest.
type node struct {
	dtype  arrow.DataType
	layout *layout.Layout
	length int64 // elements
	nulls  int64 // or -1 when not known
	offset int64 // elements before the first
	// buffers is what ArrowArray.buffers points to: device addresses, and for
	// views the host address of the sizes at the end. It lies in the producer's
	// memory, or in Go memory that the owner pinned, so an export can point to it.
	buffers []uintptr
	// children are the child arrays; the dictionary of a dictionary array is its
	// only one.
	children []node
}

const unknownNulls = -1

// Kind returns the type that the buffers are laid out as: dtype, unless that
// is an extension type.
func (n *node) storage() arrow.DataType { return layout.StorageType(n.dtype) }

// validity returns the address of the validity bitmap, or 0 when every element is valid.
func (n *node) validity() uintptr {
	if !n.layout.Validity {
		return 0
	}
	return n.buffers[0]
}

// dropEmptyOffset keeps whoever reads the one offset that an empty array has away
// from where it does not have any.
func (n *node) dropEmptyOffset() {
	if n.length == 0 {
		n.offset = 0
	}
}

// childName is how paths name child i.
func (n *node) childName(i int) string {
	if n.layout.Kind == layout.Dictionary {
		return "dictionary"
	}
	return fielderr.Child(i)
}

// knownNulls is the null count that follows from the struct alone: without a
// bitmap there are no nulls, except that a null array is nothing else.
func knownNulls(l *layout.Layout, length, nulls int64, validity uintptr) int64 {
	switch {
	case l.Kind == layout.Null:
		return length
	case !l.Validity || validity == 0:
		return 0
	}
	return nulls
}

// slice returns elements [i, j) of n. The buffers and children stay the same.
func (n *node) slice(i, j int64) node {
	s := *n
	s.offset += i
	s.length = j - i
	s.dropEmptyOffset()
	switch {
	case s.length == n.length:
	case n.layout.Kind == layout.Null:
		s.nulls = s.length
	case n.nulls != 0:
		s.nulls = unknownNulls
	}
	return s
}

// treeSize counts what the C structs of a tree need.
type treeSize struct {
	structs  int // nodes, without the root of the measured tree
	pointers int // entries of children arrays
}

func (t *treeSize) addChildren(n *node) {
	t.structs += len(n.children)
	if n.layout.Kind != layout.Dictionary {
		t.pointers += len(n.children)
	}
	for i := range n.children {
		if len(n.children[i].children) != 0 {
			t.addChildren(&n.children[i])
		}
	}
}

// noData says that nothing can be read at a buffer's address: it is NULL, or
// stands for NULL (see replaceNulls).
func noData(addr uintptr) bool { return addr == 0 || addr == bridge.Zeros }

// replaceNulls gives every buffer of host memory but the validity bitmaps an
// address: some consumers, Arrow C++ among them, reject NULL offsets even where
// there is nothing to read. The producer's arrays of buffers are not touched.
func (m *memoryOwner) replaceNulls(nodes []node) {
	count := 0
	eachWithNulls(nodes, func(n *node) { count += len(n.buffers) })
	if count == 0 {
		return
	}
	own := make([]uintptr, count)
	m.pin(&own[0])
	eachWithNulls(nodes, func(n *node) {
		buffers := take(&own, len(n.buffers))
		for i, addr := range n.buffers {
			if addr == 0 && i >= n.layout.FirstData() {
				addr = bridge.Zeros
			}
			buffers[i] = addr
		}
		n.buffers = buffers
	})
}

// eachWithNulls calls do for the nodes with a NULL buffer that is not a bitmap.
func eachWithNulls(nodes []node, do func(*node)) {
	for i := range nodes {
		n := &nodes[i]
		if first := n.layout.FirstData(); len(n.buffers) > first && slices.Contains(n.buffers[first:], 0) {
			do(n)
		}
		if len(n.children) > 0 {
			eachWithNulls(n.children, do)
		}
	}
}
