//go:build cgo && linux

package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/ci/counts/probe"
	"github.com/arrowdevice/arrowdevice/device"
)

// rows is the length of each batch. No path reads the values, but copies do.
const rows = 100

// numbers returns a batch of int64 columns in memory of C.
func numbers(columns int) arrow.RecordBatch {
	fields, arrays := make([]arrow.Field, columns), make([]arrow.Array, columns)
	for i := range arrays {
		b := array.NewInt64Builder(mallocator.NewMallocator())
		for j := range rows {
			b.Append(int64(j))
		}
		arrays[i] = b.NewArray()
		fields[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: arrays[i].DataType(), Nullable: true}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rows)
}

func wrapped(columns int) *cdevice.RecordBatch {
	return must(cdevice.WrapRecordBatch(numbers(columns), device.CPUDevice()))
}

// lent is the batch as a producer in C lends it.
func lent(b *cdevice.RecordBatch) *cdevice.CArrowDeviceArray {
	out := probe.New[cdevice.CArrowDeviceArray]()
	check(cdevice.ExportRecordBatch(b, out, nil))
	probe.Lend(out)
	return out
}
