// Command pyextension adds a column to tables of Python's: the sum of another column up to each row.
package main

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {} // Python calls the functions

func init() {
	pyextension.Func("add_running_total", addRunningTotal, pyextension.WithParams("table", "column"))
}

func addRunningTotal(table arrow.RecordBatch, column string) (arrow.RecordBatch, error) {
	at := table.Schema().FieldIndices(column)
	if len(at) != 1 || table.Column(at[0]).DataType().ID() != arrow.FLOAT64 {
		return nil, fmt.Errorf("%w: no float64 column %q", arrow.ErrInvalid, column) // ValueError in Python
	}
	sum, builder := 0.0, array.NewFloat64Builder(memory.DefaultAllocator)
	defer builder.Release()
	for i, value := range table.Column(at[0]).(*array.Float64).Values() {
		if table.Column(at[0]).IsValid(i) {
			sum += value
		}
		builder.Append(sum)
	}
	totals := builder.NewArray()
	defer totals.Release()
	added := arrow.Field{Name: column + "_total", Type: arrow.PrimitiveTypes.Float64}
	schema := arrow.NewSchema(append(table.Schema().Fields(), added), nil)
	return array.NewRecordBatch(schema, append(slices.Clone(table.Columns()), totals), table.NumRows()), nil
}
