// Package tree is arrays in Go memory: nodes that mirror C structs, the owner that keeps their buffers
// alive, and the location of the buffers: device and event.
package tree

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Tree is arrays that share one owner and one location: the columns of a record batch, or a
// single array. It borrows the owner's reference of the batch or array that it was taken from.
type Tree struct {
	Mem   *Owner
	At    Location
	Nodes []Node
	Name  func(i int) string // of node i in errors
}

// Each calls do for each node, not for those below it, until one has an error, to which it gives
// the name of the node.
func (t Tree) Each(do func(n *Node) error) error {
	for i := range t.Nodes {
		if err := do(&t.Nodes[i]); err != nil {
			return fielderr.Within(t.Name(i), err)
		}
	}
	return nil
}

// ColumnName is how paths name column i of a record batch.
func ColumnName(i int) string { return fmt.Sprintf("column[%d]", i) }

// ArrayName is how paths name the node of a single array.
func ArrayName(int) string { return "array" }
