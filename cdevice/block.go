package cdevice

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// Every buffer of a copied batch starts at a multiple of blockAlignment in the one
// allocation of the batch, and is zero behind its end up to the next: consumers read
// bitmaps in whole words, and cuDF pads to 64 bytes itself.
const blockAlignment = 256

func blockAligned(n int64) int64 { return (n + blockAlignment - 1) &^ (blockAlignment - 1) }

// blockLayout is where the parts of compact trees lie in one allocation.
type blockLayout struct {
	parts   []part
	offsets []int64
	// size is that of all parts, and of an aligned place behind them for buffers of
	// which there is nothing: they need an address on the same device.
	size  int64
	nodes int
	views int // sizes of view buffers
}

func layBlock(trees []compact) *blockLayout {
	l := &blockLayout{}
	l.add(trees)
	l.size += blockAlignment
	return l
}

func (l *blockLayout) add(trees []compact) {
	for i := range trees {
		t := &trees[i]
		l.nodes++
		if t.layout.Kind == layout.View {
			l.views += len(t.parts) - t.layout.FirstData() - 1
		}
		for _, p := range t.parts {
			l.parts = append(l.parts, p)
			l.offsets = append(l.offsets, l.size)
			l.size += blockAligned(p.size)
		}
		l.add(t.children)
	}
}

func (l *blockLayout) empty() int64 { return l.size - blockAlignment }

// block is what the owner of a copied batch knows of its memory.
type block struct {
	base device.Ptr
	size int64
	// buffers are the buffer arrays of all nodes, one after the other; sizes and
	// lengths are parallel to them: the bytes of each buffer, and at the first buffer
	// of a node the length of its array.
	buffers        []uintptr
	sizes, lengths []int64
}

// setEvent keeps the native handle of the event that the memory is ready after, and
// returns where: what sync_event points to.
func (b *block) setEvent(handle uintptr) uintptr {
	cell := &b.buffers[len(b.buffers)-1]
	*cell = handle
	return uintptr(unsafe.Pointer(cell))
}

// contains says whether the bytes are the block's.
func (b *block) contains(p uintptr, size int64) bool {
	return b != nil && p >= uintptr(b.base) && p+uintptr(size) <= uintptr(b.base)+uintptr(b.size)
}

// whole returns the sizes of the node's buffers, if it is a node of the block as it
// was made, not a slice of one.
func (b *block) whole(n *node) ([]int64, bool) {
	if b == nil || n.offset != 0 {
		return nil, false
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(n.buffers)))
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b.buffers)))
	i := (first - start) / sizeofPointer
	if first < start || i >= uintptr(len(b.lengths)) || b.lengths[i] != n.length {
		return nil, false
	}
	return b.sizes[i : i+uintptr(len(n.buffers))], true
}

// builder makes the nodes of trees that were laid out in a block.
type builder struct {
	*block
	layout  *blockLayout
	nodes   []node
	views   []int64
	part    int // the next one
	entries int // of buffers that are taken
}

// buildNodes makes the nodes of a block at base. What exported structs will point to
// is pinned by mem.
func buildNodes(mem *memoryOwner, base device.Ptr, l *blockLayout, trees []compact) []node {
	entries := len(l.parts) + l.nodes + 1 // every node has at least one entry of its own; the event has the last
	b := builder{
		block:  &block{base, l.size, make([]uintptr, entries), make([]int64, entries), make([]int64, entries)},
		layout: l,
		nodes:  make([]node, l.nodes),
		views:  make([]int64, l.views),
	}
	mem.block = b.block
	mem.pin(&b.buffers[0])
	if l.views > 0 {
		mem.pin(&b.views[0])
	}
	return b.build(trees)
}

func (b *builder) build(trees []compact) []node {
	nodes := take(&b.nodes, len(trees))
	for i := range trees {
		t, n := &trees[i], &nodes[i]
		*n = node{dtype: t.dtype, layout: t.layout, length: t.length, nulls: t.nulls}
		count := len(t.parts)
		first := b.entries
		b.entries += count + 1
		b.lengths[first] = t.length
		for k, p := range t.parts {
			b.sizes[first+k] = p.size
			b.buffers[first+k] = b.address(t, k, p)
			b.part++
		}
		if t.layout.Kind == layout.View {
			sizes := take(&b.views, count-t.layout.FirstData()-1)
			copy(sizes, b.sizes[first+t.layout.FirstData()+1:first+count])
			b.buffers[first+count] = bridge.Zeros
			if len(sizes) > 0 {
				b.buffers[first+count] = uintptr(unsafe.Pointer(&sizes[0]))
			}
			count++
		}
		n.buffers = b.buffers[first : first+count : first+count]
		n.children = b.build(t.children)
	}
	return nodes
}

// address is where part k of a tree lies; a bitmap of no bytes is none.
func (b *builder) address(t *compact, k int, p part) uintptr {
	switch {
	case p.size > 0:
		return uintptr(b.base) + uintptr(b.layout.offsets[b.part])
	case t.layout.Validity && k == 0:
		return 0
	}
	return uintptr(b.base) + uintptr(b.layout.empty())
}
