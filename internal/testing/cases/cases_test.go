package cases

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryCaseBuilds(t *testing.T) {
	names := map[string]bool{}
	for _, c := range All() {
		assert.False(t, names[c.Name], "name %s is taken twice", c.Name)
		names[c.Name] = true
		for _, v := range Variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
				arr, err := c.Array(mem, v)
				require.NoError(t, err)
				assert.True(t, arrow.TypeEqual(c.Type, arr.DataType()))
				arr.Release()
				mem.AssertSize(t, 0)
			})
		}
	}
}

// Every type id of arrow-go that can be an array is in some case, so that a new
// one in a later version is noticed.
func TestEveryTypeIDIsCovered(t *testing.T) {
	seen := map[arrow.Type]bool{}
	for _, c := range All() {
		seen[c.Type.ID()] = true
	}
	for id := arrow.NULL; id <= arrow.DECIMAL64; id++ {
		assert.True(t, seen[id], "no case of type %s", id)
	}
}
