// Command filter is a Python extension that filters tables, also those of polars.
package main

import (
	"context"

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

// withoutViews casts text of type string_view, as polars passes it, to utf8: arrow-go's compute filters, takes and compares no views.
func withoutViews(ctx context.Context, table arrow.RecordBatch) (arrow.RecordBatch, error) {
	fields, columns := table.Schema().Fields(), make([]arrow.Array, table.NumCols())
	for i, column := range table.Columns() {
		if columns[i] = column; column.DataType().ID() != arrow.STRING_VIEW {
			continue
		}
		cast, err := compute.CastArray(ctx, column, compute.SafeCastOptions(arrow.BinaryTypes.String))
		if err != nil {
			return nil, err
		}
		defer cast.Release()
		columns[i], fields[i].Type = cast, cast.DataType()
	}
	metadata := table.Schema().Metadata()
	return array.NewRecordBatch(arrow.NewSchema(fields, &metadata), columns, table.NumRows()), nil
}
