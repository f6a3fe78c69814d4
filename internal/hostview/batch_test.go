package hostview

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Columns that are asked for in order are made several at once, each time twice as many; others one at a time.
func TestColumnsInOrderAreMadeInRuns(t *testing.T) {
	const columns = 100
	view := batchOf(t, columns)
	var ends []int
	for i := range columns {
		assert.NotNil(t, view.Column(i))
		assert.LessOrEqual(t, countMade(view), 2*i+1, "not many more than were asked for")
		if len(ends) == 0 || ends[len(ends)-1] != view.next {
			ends = append(ends, view.next)
		}
	}
	assert.Equal(t, []int{1, 3, 7, 15, 31, 63, columns}, ends)
	assert.Equal(t, columns, countMade(view))

	backwards := batchOf(t, columns)
	for k := range columns {
		backwards.Column(columns - 1 - k)
		backwards.Column(columns - 1 - k)
		assert.Equal(t, k+1, countMade(backwards))
	}

	apart := batchOf(t, columns)
	for k := range 5 {
		apart.Column(20 * k)
		assert.Equal(t, k+1, countMade(apart))
	}
	first := apart.Column(0)
	apart.makeFrom(0) // as after another goroutine made it between the check and the lock
	apart.makeAll(0)
	assert.Same(t, first, apart.Column(0))
	assert.Equal(t, columns, countMade(apart))

	mixed := batchOf(t, columns)
	second := mixed.Column(2)
	mixed.Column(0)
	mixed.Column(1)
	assert.Same(t, second, mixed.Column(2), "a run leaves the columns that are made")
	assert.Equal(t, 3, countMade(mixed))
	all := mixed.Columns()
	assert.Same(t, second, all[2])
	assert.NotContains(t, all, nil)
}

func countMade(b *Batch) (n int) {
	for i := range b.made {
		if b.isMade(i) {
			n++
		}
	}
	return n
}

// batchOf returns a batch with the same column so many times.
func batchOf(t *testing.T, columns int) *Batch {
	t.Helper()
	of := trees.Of(t, trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[1, null, 3]`))
	var all tree.Columns
	all.SetMade(slices.Repeat(of.Nodes, columns))
	field := arrow.Field{Name: "c", Type: of.Nodes[0].Type, Nullable: true}
	schema := arrow.NewSchema(slices.Repeat([]arrow.Field{field}, columns), nil)
	rec, err := New(schema, of.Nodes[0].Length, nil, &all, of.Mem.Retain())
	require.NoError(t, err)
	t.Cleanup(rec.Release)
	return rec.(*Batch)
}
