// Command ours has the functions of measure.py by package pyextension, built with -buildmode=c-shared.
package main

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {}

func init() {
	pyextension.Func("empty", func() {})
	pyextension.Func("add", func(a, b int64) int64 { return a + b })
	pyextension.Func("spin", spin)
	pyextension.Func("rows", (*cdevice.RecordBatch).NumRows)
	pyextension.Func("rows_of_stream", rowsOfStream)
	pyextension.Func("batch", batch)
}

// spin works for n steps, each of which needs the one before.
func spin(n int64) int64 {
	x := uint64(1)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return int64(x >> 1)
}

func rowsOfStream(stream *cdevice.RecordReader) (total int64, err error) {
	for batch, err := range stream.All() {
		if err != nil {
			return 0, err
		}
		total += batch.NumRows()
	}
	return total, nil
}

// batch is a batch of one int64 column.
func batch(rows int64) arrow.RecordBatch {
	b := array.NewInt64Builder(mallocator.NewMallocator())
	defer b.Release()
	for i := range rows {
		b.Append(i)
	}
	column := b.NewArray()
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{column}, rows)
}
