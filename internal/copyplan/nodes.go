package copyplan

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// builder makes the nodes of copy plans that were laid out in a block.
type builder struct {
	*tree.Block
	layout  *blockLayout
	nodes   []tree.Node
	views   []int64
	part    int // the index of the next part
	entries int // entries of buffer arrays that are used
}

// buildNodes makes the nodes of a block at base. mem pins the Go memory that exported structs will
// point to.
func buildNodes(mem *tree.Owner, base device.Ptr, l *blockLayout, plans []Plan) []tree.Node {
	entries := len(l.parts) + l.nodes + 1 // at least one entry for each node, and the last one for the event
	b := builder{
		Block:  &tree.Block{Base: base, Size: l.size, Buffers: make([]uintptr, entries), Sizes: make([]int64, entries), Lengths: make([]int64, entries)},
		layout: l,
		nodes:  make([]tree.Node, l.nodes),
		views:  make([]int64, l.views),
	}
	mem.Block = b.Block
	mem.Pin(&b.Buffers[0])
	if l.views > 0 {
		mem.Pin(&b.views[0])
	}
	return b.build(plans)
}

func (b *builder) build(plans []Plan) []tree.Node {
	nodes := tree.Take(&b.nodes, len(plans))
	for i := range plans {
		t, n := &plans[i], &nodes[i]
		*n = tree.Node{Type: t.dtype, Layout: t.Layout, Length: t.Length, Nulls: t.nulls}
		count := len(t.Parts)
		first := b.entries
		b.entries += count + 1
		b.Lengths[first] = t.Length
		for k, p := range t.Parts {
			b.Sizes[first+k] = p.Size
			b.Buffers[first+k] = b.address(t, k, p)
			b.part++
		}
		if t.Layout.Kind == layout.View {
			sizes := tree.Take(&b.views, count-t.Layout.FirstData()-1)
			copy(sizes, b.Sizes[first+t.Layout.FirstData()+1:first+count])
			b.Buffers[first+count] = bridge.Zeros
			if len(sizes) > 0 {
				b.Buffers[first+count] = uintptr(unsafe.Pointer(&sizes[0]))
			}
			count++
		}
		n.Buffers = b.Buffers[first : first+count : first+count]
		n.Children = b.build(t.Children)
	}
	return nodes
}

// address returns the address of part k of a tree, or 0 for a bitmap of no bytes.
func (b *builder) address(t *Plan, k int, p part) uintptr {
	switch {
	case p.Size > 0:
		return uintptr(b.Base) + uintptr(b.layout.offsets[b.part])
	case t.isNoBitmap(k):
		return 0
	}
	return uintptr(b.Base) + uintptr(b.layout.empty())
}
