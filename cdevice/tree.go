package cdevice

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// tree is arrays that share one owner and one location: the columns of a record batch, or a
// single array. It borrows the owner's reference of the batch or array that it was taken from.
type tree struct {
	mem   *memoryOwner
	at    place
	nodes []node
	name  func(i int) string // of node i in errors
}

// tree returns the columns of the batch. The caller holds the memory.
func (b *RecordBatch) tree() tree { return tree{b.mem, b.at(), b.columns, columnName} }

// tree returns the one node of the array. The caller holds the memory.
func (a *Array) tree() tree { return tree{a.mem, a.at(), []node{a.node}, arrayName} }

// each calls do for each node, not for those below it, until one has an error, to which it gives
// the name of the node.
func (t tree) each(do func(n *node) error) error {
	for i := range t.nodes {
		if err := do(&t.nodes[i]); err != nil {
			return fielderr.Within(t.name(i), err)
		}
	}
	return nil
}

// columnName is how paths name column i of a record batch.
func columnName(i int) string { return fmt.Sprintf("column[%d]", i) }

// arrayName is how paths name the node of a single array.
func arrayName(int) string { return "array" }
