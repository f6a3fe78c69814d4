// Command filter is a Python extension that filters tables, also those of polars.
package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {} // Python calls the function

func init() {
	pyextension.Func("keep", keep, pyextension.WithParams("table", "rows"))
}

// keep returns the rows of a table whose element of rows, an array of booleans, is true.
func keep(ctx context.Context, table arrow.RecordBatch, rows arrow.Array) (arrow.RecordBatch, error) {
	text, err := withoutViews(ctx, table)
	if err != nil {
		return nil, err
	}
	defer text.Release()
	return compute.FilterRecordBatch(ctx, text, rows, compute.DefaultFilterOptions())
}

// flat are the types that arrow-go's compute filters, takes and compares, instead of those of text and bytes of polars.
var flat = map[arrow.Type]arrow.DataType{arrow.STRING_VIEW: arrow.BinaryTypes.String, arrow.BINARY_VIEW: arrow.BinaryTypes.Binary}

// withoutViews casts the columns of these types. Of the others, it copies nothing.
func withoutViews(ctx context.Context, table arrow.RecordBatch) (arrow.RecordBatch, error) {
	fields, columns := table.Schema().Fields(), slices.Clone(table.Columns())
	for i, column := range columns {
		to := flat[column.DataType().ID()]
		if to == nil {
			continue
		}
		cast, err := compute.CastArray(ctx, column, compute.SafeCastOptions(to))
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", fields[i].Name, err)
		}
		defer cast.Release()
		columns[i], fields[i].Type = cast, to
	}
	metadata := table.Schema().Metadata()
	return array.NewRecordBatch(arrow.NewSchema(fields, &metadata), columns, table.NumRows()), nil
}
