package tree

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// Block describes the memory of a copy in device memory: its buffers and their sizes.
type Block struct {
	Base device.Ptr
	Size int64
	// Buffers are the buffer arrays of all nodes, one after the other. Sizes and lengths are
	// parallel to them: the size in bytes of each buffer, and, at the first buffer of a node, the
	// length of its array.
	Buffers        []uintptr
	Sizes, Lengths []int64
}

// SetEvent stores the native handle of the event after which the memory is ready, and returns its
// address, to which sync_event points.
func (b *Block) SetEvent(handle uintptr) uintptr {
	cell := &b.Buffers[len(b.Buffers)-1]
	*cell = handle
	return uintptr(unsafe.Pointer(cell))
}

// Contains reports whether the bytes are within the block.
func (b *Block) Contains(p uintptr, size int64) bool {
	return b != nil && p >= uintptr(b.Base) && p+uintptr(size) <= uintptr(b.Base)+uintptr(b.Size)
}

// Whole returns the sizes of the node's buffers, if it is a node of the block as it
// was made, not a slice of one.
func (b *Block) Whole(n *Node) ([]int64, bool) {
	if b == nil || n.Offset != 0 {
		return nil, false
	}
	if len(n.Buffers) == 0 { // the block has no length of it; an array of nulls has nothing to be cut
		return nil, n.Layout.Kind == layout.Null
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(n.Buffers)))
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b.Buffers)))
	i := (first - start) / unsafe.Sizeof(uintptr(0))
	if first < start || i >= uintptr(len(b.Lengths)) || b.Lengths[i] != n.Length {
		return nil, false
	}
	return b.Sizes[i : i+uintptr(len(n.Buffers))], true
}

// AsMade reports whether the node and all nodes below it are unchanged nodes of the block.
func (b *Block) AsMade(n *Node) bool {
	if _, ok := b.Whole(n); !ok {
		return false
	}
	for i := range n.Children {
		if !b.AsMade(&n.Children[i]) {
			return false
		}
	}
	return true
}
