// Package tree holds arrays in Go memory: nodes that mirror C structs, the owner that keeps their
// buffers alive, and the location of the buffers, their device and event.
package tree

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Tree is the columns of a record batch, or a single array, with their owner and location. It
// borrows the reference to the owner that the batch or array holds.
type Tree struct {
	Mem   *Owner
	At    Location
	Nodes []Node
	Name  func(i int) string // names node i in errors
}

// Each calls do for each node, but not for those below it, until do returns an error. It adds the
// node's name to that error.
func (t *Tree) Each(do func(n *Node) error) error {
	for i := range t.Nodes {
		if err := do(&t.Nodes[i]); err != nil {
			return fielderr.Within(t.Name(i), err)
		}
	}
	return nil
}

// ColumnName returns the name of column i of a record batch in paths.
func ColumnName(i int) string { return fmt.Sprintf("column[%d]", i) }

// ArrayName returns the name of the node of a single array in paths.
func ArrayName(int) string { return "array" }
