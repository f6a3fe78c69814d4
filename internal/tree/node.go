package tree

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// Node is one array of a tree: an ArrowArray in Go memory, with its type. Nodes are immutable. All
// nodes of a tree are in one slice, in which siblings are adjacent; slicing and column selection
// copy the nodes that they change and share the others.
type Node struct {
	Type   arrow.DataType
	Layout *layout.Layout
	Length int64 // elements
	Nulls  int64 // or UnknownNulls
	Offset int64 // elements before the first
	// Buffers is the array that ArrowArray.buffers points to: device addresses and, for views, at
	// the end the CPU address of the sizes. It is in the producer's memory, or in Go memory that
	// the owner pinned, so an export can point to it.
	Buffers []uintptr
	// Children are the child arrays; the dictionary of a dictionary array is its
	// only one.
	Children []Node
}

// UnknownNulls is the null count of an array whose nulls were not counted.
const UnknownNulls = -1

// Storage returns the type that the buffers are laid out as: Type, unless that is an extension type.
func (n *Node) Storage() arrow.DataType { return layout.StorageType(n.Type) }

// Validity returns the address of the validity bitmap, or 0 if there is none.
func (n *Node) Validity() uintptr {
	if !n.Layout.Validity {
		return 0
	}
	return n.Buffers[0]
}

// DropEmptyOffset sets the offset of an empty array to zero: its offsets buffer may have one entry
// only, and readers must not read beyond that.
func (n *Node) DropEmptyOffset() {
	if n.Length == 0 {
		n.Offset = 0
	}
}

// ChildName returns the name of child i in paths.
func (n *Node) ChildName(i int) string {
	if n.Layout.Kind == layout.Dictionary {
		return "dictionary"
	}
	return fielderr.Child(i)
}

// KnownNulls returns the null count that follows from the struct alone: without a bitmap there are
// no nulls, except that all elements of a null array are null.
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

// Size counts the C structs and pointers that an export of a tree needs.
type Size struct {
	Structs  int // nodes, without the root of the measured tree
	Pointers int // entries of children arrays
}

// AddChildren adds the nodes below n.
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

// NoData reports whether a buffer's address is NULL, or replaces NULL (see Owner.ReplaceNulls), so
// that no data can be read there.
func NoData(addr uintptr) bool { return addr == 0 || addr == bridge.Zeros }

// ReplaceNulls replaces the NULL addresses of buffers in CPU memory, except validity bitmaps: some
// consumers, such as Arrow C++, reject NULL offsets even if the array is empty. The producer's
// arrays of buffers are not changed.
func (m *Owner) ReplaceNulls(nodes []Node) {
	count := 0
	eachWithNulls(nodes, func(n *Node) { count += len(n.Buffers) })
	if count == 0 {
		return
	}
	own := make([]uintptr, count)
	m.mu.Lock() // nodes may be made on several goroutines
	m.Pin(&own[0])
	m.mu.Unlock()
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

// Take removes the first n elements from a slice, and returns them.
func Take[T any](from *[]T, n int) []T {
	head := (*from)[:n:n]
	*from = (*from)[n:]
	return head
}
