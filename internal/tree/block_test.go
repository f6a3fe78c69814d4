package tree

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// The sizes of a block's buffers are those of its nodes as they were made: of no slice, and of no node that is elsewhere.
func TestNodesOfABlock(t *testing.T) {
	b := &Block{Base: 1 << 20, Size: 512, Buffers: make([]uintptr, 5), Sizes: []int64{0, 12, 1, 24}, Lengths: []int64{2, 0, 3, 0}}
	leaf := Node{Layout: &layout.All[layout.Fixed], Length: 3, Buffers: b.Buffers[2:4]}
	list := Node{Layout: &layout.All[layout.List32], Length: 2, Buffers: b.Buffers[:2], Children: []Node{leaf}}
	sizes, whole := b.Whole(&list)
	assert.True(t, whole)
	assert.Equal(t, []int64{0, 12}, sizes)
	assert.True(t, b.AsMade(&list))
	assert.True(t, b.AsMade(&Node{Layout: &layout.All[layout.Null], Length: 7}))

	below := list
	below.Children = []Node{leaf.Slice(0, 2)}
	elsewhere := leaf
	elsewhere.Buffers = make([]uintptr, 2)
	later := list
	later.Offset = 1
	part := list.Slice(0, 1)
	for _, n := range []*Node{&below, &elsewhere, &later, &part, {Layout: &layout.All[layout.Struct]}} {
		assert.False(t, b.AsMade(n), "%+v", n)
	}
	assert.False(t, (*Block)(nil).AsMade(&list))

	assert.EqualValues(t, 7, *abi.At[uintptr](b.SetEvent(7)))
	assert.EqualValues(t, 7, b.Buffers[4])
	assert.True(t, b.Contains(1<<20, 512))
	assert.False(t, b.Contains(1<<20, 513) || b.Contains(1<<20-1, 1) || (*Block)(nil).Contains(1<<20, 1))
}

// The bytes of nodes are those that their lengths demand, where there is memory.
func TestBytesOfNodes(t *testing.T) {
	n := Node{Type: arrow.PrimitiveTypes.Int32, Layout: &layout.All[layout.Fixed], Length: 9, Offset: 1, Buffers: []uintptr{8, 8}}
	empty := Node{Type: n.Type, Layout: n.Layout, Length: 9, Buffers: []uintptr{0, bridge.Zeros}}
	list := Node{Type: arrow.ListOf(n.Type), Layout: &layout.All[layout.List32], Length: 2, Buffers: []uintptr{0, 8}, Children: []Node{n}}
	assert.EqualValues(t, 2+40, Bytes([]Node{n, empty}))
	assert.EqualValues(t, 12+2+40, Bytes([]Node{list}))
}
