package tree

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// Node is one array of a tree: an ArrowArray in Go memory, with its type. Nodes
// are immutable, and live in one slice per tree in which siblings are
// neighbours; slicing and column selection copy the nodes they change and share
// the rest.
type Node struct {
	Type   arrow.DataType
	Layout *layout.Layout
	Length int64 // elements
	Nulls  int64 // or -1 when not known
	Offset int64 // elements before the first
	// Buffers is what ArrowArray.buffers points to: device addresses, and for
	// views the host address of the sizes at the end. It lies in the producer's
	// memory, or in Go memory that the owner pinned, so an export can point to it.
	Buffers []uintptr
	// Children are the child arrays; the dictionary of a dictionary array is its
	// only one.
	Children []Node
}

const UnknownNulls = -1

// Kind returns the type that the buffers are laid out as: dtype, unless that
// is an extension type.
func (n *Node) Storage() arrow.DataType { return layout.StorageType(n.Type) }

// Validity returns the address of the validity bitmap, or 0 when every element is valid.
func (n *Node) Validity() uintptr {
	if !n.Layout.Validity {
		return 0
	}
	return n.Buffers[0]
}

// DropEmptyOffset keeps whoever reads the one offset that an empty array has away
// from where it does not have any.
func (n *Node) DropEmptyOffset() {
	if n.Length == 0 {
		n.Offset = 0
	}
}

// ChildName is how paths name child i.
func (n *Node) ChildName(i int) string {
	if n.Layout.Kind == layout.Dictionary {
		return "dictionary"
	}
	return fielderr.Child(i)
}

// KnownNulls is the null count that follows from the struct alone: without a
// bitmap there are no nulls, except that a null array is nothing else.
func KnownNulls(l *layout.Layout, length, nulls int64, validity uintptr) int64 {
	switch {
	case l.Kind == layout.Null:
		return length
	case !l.Validity || validity == 0:
		return 0
	}
	return nulls
}

// Slice returns elements [i, j) of n. The buffers and children stay the same.
func (n *Node) Slice(i, j int64) Node {
	s := *n
	s.Offset += i
	s.Length = j - i
	s.DropEmptyOffset()
	switch {
	case s.Length == n.Length:
	case n.Layout.Kind == layout.Null:
		s.Nulls = s.Length
	case n.Nulls != 0:
		s.Nulls = UnknownNulls
	}
	return s
}

// Size counts what the C structs of a tree need.
type Size struct {
	Structs  int // nodes, without the root of the measured tree
	Pointers int // entries of children arrays
}

func (t *Size) AddChildren(n *Node) {
	t.Structs += len(n.Children)
	if n.Layout.Kind != layout.Dictionary {
		t.Pointers += len(n.Children)
	}
	for i := range n.Children {
		if len(n.Children[i].Children) != 0 {
			t.AddChildren(&n.Children[i])
		}
	}
}

// NoData says that nothing can be read at a buffer's address: it is NULL, or
// stands for NULL (see replaceNulls).
func NoData(addr uintptr) bool { return addr == 0 || addr == bridge.Zeros }

// ReplaceNulls gives every buffer of host memory but the validity bitmaps an
// address: some consumers, Arrow C++ among them, reject NULL offsets even where
// there is nothing to read. The producer's arrays of buffers are not touched.
func (m *Owner) ReplaceNulls(nodes []Node) {
	count := 0
	eachWithNulls(nodes, func(n *Node) { count += len(n.Buffers) })
	if count == 0 {
		return
	}
	own := make([]uintptr, count)
	m.Pin(&own[0])
	eachWithNulls(nodes, func(n *Node) {
		buffers := Take(&own, len(n.Buffers))
		for i, addr := range n.Buffers {
			if addr == 0 && i >= n.Layout.FirstData() {
				addr = bridge.Zeros
			}
			buffers[i] = addr
		}
		n.Buffers = buffers
	})
}

// eachWithNulls calls do for the nodes with a NULL buffer that is not a bitmap.
func eachWithNulls(nodes []Node, do func(*Node)) {
	for i := range nodes {
		n := &nodes[i]
		if first := n.Layout.FirstData(); len(n.Buffers) > first && slices.Contains(n.Buffers[first:], 0) {
			do(n)
		}
		if len(n.Children) > 0 {
			eachWithNulls(n.Children, do)
		}
	}
}

// Take cuts the first n elements off a slice.
func Take[T any](from *[]T, n int) []T {
	head := (*from)[:n:n]
	*from = (*from)[n:]
	return head
}
