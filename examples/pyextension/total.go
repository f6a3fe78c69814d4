//go:build cgo

package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// withRunningTotal returns the record batch with one column more: the sum of the values of a
// float64 column up to each row, nulls skipped. The caller releases it.
func withRunningTotal(rec arrow.RecordBatch, column string) (arrow.RecordBatch, error) {
	found := rec.Schema().FieldIndices(column)
	if len(found) != 1 {
		return nil, fmt.Errorf("there are %d columns with the name %q", len(found), column)
	}
	values, ok := rec.Column(found[0]).(*array.Float64)
	if !ok {
		return nil, fmt.Errorf("column %q is %s, not double", column, rec.Column(found[0]).DataType())
	}

	builder := array.NewFloat64Builder(memory.DefaultAllocator)
	defer builder.Release()
	total := 0.0
	for i := range values.Len() {
		if values.IsValid(i) {
			total += values.Value(i)
		}
		builder.Append(total)
	}
	totals := builder.NewArray()
	defer totals.Release()

	fields := append(rec.Schema().Fields(), arrow.Field{Name: column + "_total", Type: totals.DataType()})
	metadata := rec.Schema().Metadata()
	return array.NewRecordBatch(arrow.NewSchema(fields, &metadata), append(rec.Columns()[:rec.NumCols():rec.NumCols()], totals), rec.NumRows()), nil
}
