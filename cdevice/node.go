package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// node is one array of a tree: an ArrowArray in Go memory, with its type. Nodes
// are immutable, and live in one slice per tree in which siblings are
// neighbours; slicing and column selection copy the nodes they change and share
// the rest.
type node struct {
	dtype  arrow.DataType
	layout *layout
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

// storage returns the type that the buffers are laid out as: dtype, unless that
// is an extension type.
func (n *node) storage() arrow.DataType { return storageType(n.dtype) }

// validity returns the address of the validity bitmap, or 0 when every element is valid.
func (n *node) validity() uintptr {
	if !n.layout.validity {
		return 0
	}
	return n.buffers[0]
}

// childName is how paths name child i.
func (n *node) childName(i int) string {
	if n.layout.store == storeDictionary {
		return "dictionary"
	}
	return childName(i)
}

// knownNulls is the null count that follows from the struct alone: without a
// bitmap there are no nulls, except that a null array is nothing else.
func knownNulls(l *layout, length, nulls int64, validity uintptr) int64 {
	switch {
	case l.store == storeNull:
		return length
	case !l.validity || validity == 0:
		return 0
	}
	return nulls
}

// slice returns elements [i, j) of n. The buffers and children stay the same.
func (n *node) slice(i, j int64) node {
	s := *n
	s.offset += i
	s.length = j - i
	switch {
	case s.length == n.length:
	case n.layout.store == storeNull:
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
	if n.layout.store != storeDictionary {
		t.pointers += len(n.children)
	}
	for i := range n.children {
		if len(n.children[i].children) != 0 {
			t.addChildren(&n.children[i])
		}
	}
}

// noData says that nothing can be read at a buffer's address: it is NULL, or
// stands for NULL (see withoutNulls).
func noData(addr uintptr) bool { return addr == 0 || addr == bridge.Zeros }

// withoutNulls gives every buffer but the validity bitmap a non-NULL address:
// some consumers reject NULL offsets even where there is nothing to read. It
// returns buffers itself when there is nothing to replace.
func withoutNulls(l *layout, buffers []uintptr) []uintptr {
	first := 0
	if l.validity {
		first = 1
	}
	for i := first; i < len(buffers); i++ {
		if buffers[i] == 0 {
			own := append([]uintptr(nil), buffers...)
			for ; i < len(own); i++ {
				if own[i] == 0 {
					own[i] = bridge.Zeros
				}
			}
			return own
		}
	}
	return buffers
}
