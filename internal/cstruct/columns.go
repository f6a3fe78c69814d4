package cstruct

import (
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Columns makes the nodes of an imported record batch when they are first used: it is a tree.Source.
//
// It trusts the producer's structs, which CheckColumns checked: the specification forbids the
// producer to change them before their release. It follows as many pointers as the plan has arrays,
// even if the structs have other counts now.
type Columns struct {
	Plan *layout.Plan
	Root *abi.ArrowArray // in Mem
	Mem  *tree.Owner
	// ReplaceNulls is true if the CPU can access the memory; see tree.Owner.ReplaceNulls.
	ReplaceNulls bool
}

// MakeNodes makes the nodes of the columns.
func (c *Columns) MakeNodes() []tree.Node {
	m := maker{plan: c.Plan, nodes: make([]tree.Node, len(c.Plan.Arrays))}
	columns := m.nodes[:len(c.Plan.Flat):len(c.Plan.Flat)]
	m.fill(0, abi.Slice[uintptr](c.Root.Children, len(columns)))
	for i := range columns {
		cutColumn(&columns[i], c.Root)
	}
	return c.Made(columns)
}

// FlatOf returns the source of columns that are flat and of which no nodes are made, so that each has a node that FlatNode
// makes, or nil.
func FlatOf(columns *tree.Columns) *Columns {
	if c, ok := columns.Source().(*Columns); ok && c.Plan.AllFlat && !columns.AreMade() {
		return c
	}
	return nil
}

// FlatNode sets *n to the node of column i. Its NULL buffers are not replaced.
func (c *Columns) FlatNode(n *tree.Node, i int) {
	f := &c.Plan.Arrays[i]
	fillNode(n, f.Layout, abi.At[abi.ArrowArray](abi.Slice[uintptr](c.Root.Children, len(c.Plan.Flat))[i]))
	n.Type, n.Children = f.Type, nil
	cutColumn(n, c.Root)
}

// Made returns the nodes of the columns, which it may change.
func (c *Columns) Made(columns []tree.Node) []tree.Node {
	if c.ReplaceNulls {
		c.Mem.ReplaceNulls(columns)
	}
	return columns
}

// cutColumn cuts a column to the rows of the batch: those from the offset of its struct array on.
func cutColumn(n *tree.Node, root *abi.ArrowArray) {
	if root.Offset != 0 || n.Length > root.Length {
		*n = n.Slice(root.Offset, root.Offset+root.Length)
	}
}

// maker makes nodes of structs that were checked; node i is that of array i of the plan.
type maker struct {
	plan  *layout.Plan
	nodes []tree.Node
}

// fill fills the adjacent nodes from first on, one for each struct.
func (m *maker) fill(first int32, structs []uintptr) {
	for i, addr := range structs {
		at := int(first) + i
		n, f, a := &m.nodes[at], &m.plan.Arrays[at], abi.At[abi.ArrowArray](addr)
		fillNode(n, f.Layout, a)
		n.Type = f.Type
		if f.Children > 0 {
			n.Children = m.nodes[f.First:][:f.Children:f.Children]
			m.fill(f.First, childrenOf(f, a))
		}
	}
}

// childrenOf returns the addresses of the children, or of the dictionary.
func childrenOf(f *layout.Array, a *abi.ArrowArray) []uintptr {
	if f.Layout.Kind == layout.Dictionary {
		return []uintptr{a.Dictionary}
	}
	return abi.Slice[uintptr](a.Children, int(f.Children))
}

// fillNode fills n, except its type and children, from a struct.
func fillNode(n *tree.Node, l *layout.Layout, a *abi.ArrowArray) {
	n.Layout, n.Length, n.Offset = l, a.Length, a.Offset
	n.DropEmptyOffset()
	if l.Kind != layout.Null {
		n.Buffers = abi.Slice[uintptr](a.Buffers, int(a.NBuffers))
	}
	n.Nulls = tree.KnownNulls(l, a.Length, a.NullCount, bitmapOf(l, n.Buffers))
}
