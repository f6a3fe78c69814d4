// Command cgo has the functions of measure.py as C functions for ctypes, as a program has them that uses cgo and
// arrow-go's package cdata. It is built with -buildmode=c-shared.
package main

import "C"

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
)

func main() {}

//export empty
func empty() {}

//export add
func add(a, b int64) int64 { return a + b }

// rows returns -1 for what it cannot import.
//
//export rows
func rows(schema, array unsafe.Pointer) int64 {
	batch, err := cdata.ImportCRecordBatch((*cdata.CArrowArray)(array), (*cdata.CArrowSchema)(schema))
	if err != nil {
		return -1
	}
	defer batch.Release()
	return batch.NumRows()
}

// rows_of_stream returns -1 for what it cannot read.
//
//export rows_of_stream
func rows_of_stream(stream unsafe.Pointer) (total int64) {
	reader, err := cdata.ImportCRecordReader((*cdata.CArrowArrayStream)(stream), nil)
	if err != nil {
		return -1
	}
	batches := reader.(array.RecordReader) // arrow-go's documentation promises less than it returns
	defer batches.Release()
	for batches.Next() {
		total += batches.RecordBatch().NumRows()
	}
	if batches.Err() != nil {
		return -1
	}
	return total
}
