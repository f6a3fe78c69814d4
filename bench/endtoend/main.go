// Command endtoend is the Go side of measure.py: streams for Python's libraries, built with
// -buildmode=c-shared.
package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {}

func init() {
	pyextension.Func("batches", batches, pyextension.WithParams("columns", "rows", "count"))
}

// made is the batch of the last call, since the same is asked for again and again.
var made arrow.RecordBatch

// batches is a stream that gives one batch of int64 columns so many times.
func batches(columns, rows, count int64) (*cdevice.RecordReader, error) {
	if made == nil || made.NumCols() != columns || made.NumRows() != rows {
		made = batch(columns, rows)
	}
	return cdevice.WrapRecordReader(&repeated{made, count}, device.CPUDevice())
}

func batch(columns, rows int64) arrow.RecordBatch {
	var fields []arrow.Field
	var arrays []arrow.Array
	for c := range columns {
		b := array.NewInt64Builder(mallocator.NewMallocator())
		for i := range rows {
			b.Append(c + i)
		}
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("c%d", c), Type: arrow.PrimitiveTypes.Int64, Nullable: true})
		arrays = append(arrays, b.NewArray())
		b.Release()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rows)
}

// repeated is an arrow-go reader of the same batch.
type repeated struct {
	rec  arrow.RecordBatch
	left int64
}

func (r *repeated) Retain()                        {}
func (r *repeated) Release()                       {}
func (r *repeated) Schema() *arrow.Schema          { return r.rec.Schema() }
func (r *repeated) RecordBatch() arrow.RecordBatch { return r.rec }
func (r *repeated) Record() arrow.RecordBatch      { return r.rec }
func (r *repeated) Err() error                     { return nil }
func (r *repeated) Next() bool                     { r.left--; return r.left >= 0 }
