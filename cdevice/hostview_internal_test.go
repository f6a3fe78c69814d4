package cdevice

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// Columns that are asked for in order are made several at once, each time twice as many; others one at a time.
func TestColumnsInOrderAreMadeInRuns(t *testing.T) {
	const columns = 100
	view := hostBatchOfColumns(t, columns)
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

	backwards := hostBatchOfColumns(t, columns)
	for k := range columns {
		backwards.Column(columns - 1 - k)
		backwards.Column(columns - 1 - k)
		assert.Equal(t, k+1, countMade(backwards))
	}

	apart := hostBatchOfColumns(t, columns)
	for k := range 5 {
		apart.Column(20 * k)
		assert.Equal(t, k+1, countMade(apart))
	}
	first := apart.Column(0)
	apart.makeFrom(0) // as after another goroutine made it between the check and the lock
	apart.makeAll(0)
	assert.Same(t, first, apart.Column(0))
	assert.Equal(t, columns, countMade(apart))

	mixed := hostBatchOfColumns(t, columns)
	second := mixed.Column(2)
	mixed.Column(0)
	mixed.Column(1)
	assert.Same(t, second, mixed.Column(2), "a run leaves the columns that are made")
	assert.Equal(t, 3, countMade(mixed))
	all := mixed.Columns()
	assert.Same(t, second, all[2])
	assert.NotContains(t, all, nil)
}

func countMade(b *hostBatch) (n int) {
	for i := range b.made {
		if b.isMade(i) {
			n++
		}
	}
	return n
}

func hostBatchOfColumns(t *testing.T, columns int) *hostBatch {
	t.Helper()
	builder := array.NewInt64Builder(memory.NewGoAllocator())
	builder.AppendValues([]int64{1, 2, 3}, []bool{true, false, true})
	column := builder.NewArray()
	fields, all := make([]arrow.Field, columns), make([]arrow.Array, columns)
	for i := range all {
		fields[i], all[i] = arrow.Field{Name: "c", Type: column.DataType(), Nullable: true}, column
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), all, 3)
	batch, err := WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	rec.Release()
	view, err := newHostBatch(batch)
	require.NoError(t, err)
	batch.Release()
	t.Cleanup(view.Release)
	return view.(*hostBatch)
}
