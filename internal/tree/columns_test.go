package tree

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

type source func() []Node

func (s source) MakeNodes() []Node { return s() }

// If the nodes are made twice at the same time, all callers get those that were finished first.
func TestNodesThatWereMadeFirstStay(t *testing.T) {
	var c Columns
	var first []Node
	calls := 0
	c.SetSource(2, source(func() []Node {
		if calls++; calls == 1 {
			first = c.Nodes() // as another goroutine might
		}
		return make([]Node, 2)
	}))
	for range 2 {
		nodes := c.Nodes()
		assert.Same(t, &first[0], &nodes[0])
	}
	assert.Equal(t, 2, calls)
}
