package flight

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// countNulls counts the nulls of all arrays of a batch that nobody has counted, which arrow-go's writer would do: that
// writes where the goroutine that reads ahead reads, if a program sends an array twice.
func countNulls(rec arrow.RecordBatch) {
	for _, column := range rec.Columns() {
		countNullsOf(column.Data())
	}
}

func countNullsOf(a arrow.ArrayData) {
	d, ok := a.(*array.Data)
	if !ok || d == nil {
		return
	}
	if d.NullN() < 0 && d.DataType().ID() != arrow.NULL {
		nulls := 0
		if len(d.Buffers()) > 0 && d.Buffers()[0] != nil && d.Buffers()[0].Len() > 0 {
			nulls = d.Len() - bitutil.CountSetBits(d.Buffers()[0].Bytes(), d.Offset(), d.Len())
		}
		d.SetNullN(nulls)
	}
	countNullsOf(d.Dictionary())
	for _, child := range d.Children() {
		countNullsOf(child)
	}
}
