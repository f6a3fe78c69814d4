package tree

import (
	"sync/atomic"
	"unsafe"
)

// Columns are the nodes of the columns of a record batch: made with the batch, or on their first use.
// Batches that differ only in their location or metadata share one Columns.
type Columns struct {
	made   atomic.Pointer[Node] // the first of count adjacent nodes; nil until they are made
	count  int
	source Source // nil if the nodes were made with the batch
}

// Source makes the nodes of the columns of a batch from memory that the batch's owner holds.
type Source interface {
	// MakeNodes returns one node for each column. It may be called more than once, and on several
	// goroutines at the same time; the results are equal. The caller holds a reference to the owner.
	MakeNodes() []Node
}

// SetMade sets the columns to nodes that exist.
func (c *Columns) SetMade(nodes []Node) {
	c.count = len(nodes)
	c.made.Store(unsafe.SliceData(nodes))
}

// SetSource sets the columns to the nodes that the source will make.
func (c *Columns) SetSource(count int, source Source) { c.count, c.source = count, source }

// Len returns the number of columns.
func (c *Columns) Len() int { return c.count }

// AreMade reports whether the nodes exist.
func (c *Columns) AreMade() bool { return c.made.Load() != nil }

// Source returns the source of the nodes, or nil if they were made with the batch.
func (c *Columns) Source() Source { return c.source }

// Nodes returns the nodes, which it makes if they do not exist. The caller holds a reference to the
// owner of the memory, since a source reads it.
func (c *Columns) Nodes() []Node {
	first := c.made.Load()
	if first == nil && c.count > 0 {
		first = c.makeNodes()
	}
	return unsafe.Slice(first, c.count)
}

// makeNodes makes the nodes. Of several goroutines, the first one to finish decides which nodes stay.
func (c *Columns) makeNodes() *Node {
	nodes := c.source.MakeNodes()[:c.count]
	if c.made.CompareAndSwap(nil, &nodes[0]) {
		return &nodes[0]
	}
	return c.made.Load()
}
