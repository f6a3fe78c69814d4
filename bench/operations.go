//go:build cgo

package main

import (
	"context"
	"errors"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

var errBroken = errors.New("a promised ratio does not hold")

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// carray is a struct ArrowDeviceArray as both libraries see it. Those of two goroutines share no cache line.
type carray struct {
	cdevice.CArrowDeviceArray
	_ [256 - unsafe.Sizeof(cdevice.CArrowDeviceArray{})]byte
}

// plain is the struct ArrowArray in a struct ArrowDeviceArray.
func plain(c *cdevice.CArrowDeviceArray) *cdata.CArrowArray {
	return (*cdata.CArrowArray)(unsafe.Pointer(&c.Array))
}

// measurement is an operation that can be measured with a shape.
type measurement struct {
	name string
	open func(shape) operation
}

// kinds are all measurements, by files.
var kinds = []func(subject) []measurement{exportOperations, batchOperations, schemaOperations, streamOperations, asyncOperations, goroutineOperations, dropInOperations}

const (
	importRelease = "import+release"
	importView    = "import+view+release"
	importColumn  = "import+view, one column read"
	importValues  = "import+values, one column read"
	validation    = "full validation"
)

func batchOperations(sub subject) []measurement {
	all := []measurement{
		{importRelease, importing},
		{importView, viewing(importView, allColumns)},
		{importColumn, viewing(importColumn, func(arrow.RecordBatch) int { return 1 })},
	}
	if sub.name == "int64" {
		all = append(all, measurement{importValues, summing})
	}
	if sub.columns <= 1000 { // the work is that of the rows
		all = append(all, measurement{validation, validating})
	}
	return all
}

// The import operations get their structs from the same C producer on all sides.

func importing(s shape) operation {
	ours, end := importer(s)
	peers := append(cdataImport(s), s.floor(importRelease, false)...)
	return operation{ours: side{do: ours}, peers: append(peers, s.others(importRelease, false)...), close: end}
}

// importer imports the batches of a producer that no other importer has.
func importer(s shape) (do func(n int), end func()) {
	in, producer := new(carray), s.producer()
	schema := s.rec.Schema()
	do = func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			must(cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, schema)).Release()
		}
	}
	return do, producer.Close
}

// cdataImporter ends with an arrow.RecordBatch, all of whose columns are there.
func cdataImporter(s shape) (do func(n int), end func()) {
	in, producer := new(carray), s.producer()
	schema := s.rec.Schema()
	do = func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			must(cdata.ImportCRecordBatchWithSchema(plain(&in.CArrowDeviceArray), schema)).Release()
		}
	}
	return do, producer.Close
}

func cdataImport(s shape) []peer {
	do, end := cdataImporter(s)
	return []peer{{name: "cdata", do: do, close: end}}
}

func allColumns(rec arrow.RecordBatch) int { return int(rec.NumCols()) }

// viewing ends with an arrow.RecordBatch, of which so many columns are asked for.
func viewing(name string, columns func(arrow.RecordBatch) int) func(shape) operation {
	return func(s shape) operation {
		in, producer := new(carray), s.producer()
		schema := s.rec.Schema()
		ctx := context.Background()
		ours := func(n int) {
			for range n {
				producer.Give(&in.CArrowDeviceArray)
				batch := must(cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, schema))
				view := must(batch.HostView(ctx))
				batch.Release()
				for i := range columns(view) {
					if view.Column(i).Len() != rows {
						panic("bench: the column is short")
					}
				}
				view.Release()
			}
		}
		peers := append(cdataImport(s), s.floor(name, false)...)
		return operation{ours: side{do: ours}, peers: append(peers, s.others(name, false)...), close: producer.Close}
	}
}

// summing reads the values of one column, without an arrow.RecordBatch.
func summing(s shape) operation {
	in, producer := new(carray), s.producer()
	schema := s.rec.Schema()
	ctx := context.Background()
	total := int64(0)
	ours := func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			batch := must(cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, schema))
			total += sum(must(cdevice.Values[int64](must(batch.ColumnView(ctx, 0)))))
			batch.Release()
		}
	}
	return operation{ours: side{do: ours}, peers: append(cdataSum(s), s.others(importValues, false)...), close: producer.Close}
}

func cdataSum(s shape) []peer {
	in, producer := new(carray), s.producer()
	schema := s.rec.Schema()
	total := int64(0)
	do := func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			rec := must(cdata.ImportCRecordBatchWithSchema(plain(&in.CArrowDeviceArray), schema))
			total += sum(rec.Column(0).(*array.Int64).Int64Values())
			rec.Release()
		}
	}
	return []peer{{name: "cdata", do: do, close: producer.Close}}
}

func sum(values []int64) (total int64) {
	for _, value := range values {
		total += value
	}
	return total
}

// validating checks all buffers of a batch that was imported before.
func validating(s shape) operation {
	in, producer := new(carray), s.producer()
	producer.Give(&in.CArrowDeviceArray)
	batch := must(cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, s.rec.Schema()))
	ctx := context.Background()
	ours := func(n int) {
		for range n {
			check(batch.ValidateFull(ctx))
		}
	}
	return operation{ours: side{do: ours}, peers: s.others(validation, false), close: func() {
		batch.Release()
		producer.Close()
	}}
}
