//go:build cgo

package main

import (
	"context"
	"errors"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/bench/peers"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
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

func (a *carray) plain() *cdata.CArrowArray { return (*cdata.CArrowArray)(unsafe.Pointer(&a.Array)) }

// measurement is an operation that can be measured with a shape.
type measurement struct {
	name string
	open func(shape) operation
}

// kinds are all measurements, by files.
var kinds = []func(subject) []measurement{batchOperations, schemaOperations, streamOperations, asyncOperations, goroutineOperations, dropInOperations}

const (
	exportRelease     = "export+release"
	wrapExportRelease = "wrap+export+release"
	importRelease     = "import+release"
	importView        = "import+view+release"
	importColumn      = "import+view, one column read"
	importValues      = "import+values, one column read"
	plainBothWays     = "plain both ways"
	validation        = "full validation"
)

func batchOperations(sub subject) []measurement {
	all := []measurement{
		{exportRelease, exporting}, {wrapExportRelease, wrapping}, {importRelease, importing},
		{importView, viewing(importView, allColumns)},
		{importColumn, viewing(importColumn, func(arrow.RecordBatch) int { return 1 })},
		{plainBothWays, plain},
	}
	if sub.name == "int64" {
		all = append(all, measurement{importValues, summing})
	}
	if sub.columns <= 1000 { // the work is that of the rows
		all = append(all, measurement{validation, validating})
	}
	return all
}

func exporting(s shape) operation {
	e := newExporter(s)
	peers := append([]peer{{name: "cdata", do: cdataExport(s)}}, s.floor(exportRelease)...)
	return operation{ours: side{do: e.do}, peers: append(peers, s.others(exportRelease)...), close: e.batch.Release}
}

// cFloor is a C program that does no more than it must.
const cFloor = "C floor"

// goFloor is a Go program that does no more than it must.
const goFloor = "Go floor"

// floor is the least that an operation takes.
func (s shape) floor(name string) []peer {
	switch {
	case name == exportRelease:
		p := s.producer()
		return []peer{{name: cFloor, do: func(n int) { check(p.Floor(n)) }, close: p.Close}}
	case name == importRelease:
		p := s.producer()
		return []peer{{name: goFloor, do: p.ImportFloor, close: p.Close}}
	case name == importView && s.name == "int64":
		p := s.producer()
		return []peer{{name: goFloor, do: p.ViewFloor, close: p.Close}}
	case name == wrapExportRelease && s.name == "int64":
		return []peer{{name: goFloor, do: func(n int) { peers.WrapFloor(s.rec, n) }}}
	}
	return nil
}

func cdataExport(s shape) func(int) {
	out := new(cdata.CArrowArray)
	return func(n int) {
		for range n {
			*out = cdata.CArrowArray{}
			cdata.ExportArrowRecordBatch(s.rec, out, nil)
			cdata.ReleaseCArrowArray(out)
		}
	}
}

func wrapping(s shape) operation {
	out := new(carray)
	ours := func(n int) {
		for range n {
			batch := must(cdevice.WrapRecordBatch(s.rec, device.CPUDevice()))
			check(cdevice.ExportRecordBatch(batch, &out.CArrowDeviceArray, nil))
			batch.Release()
			cdevice.ReleaseStruct(&out.CArrowDeviceArray)
		}
	}
	peers := append([]peer{{name: "cdata", do: cdataExport(s)}}, s.floor(wrapExportRelease)...)
	return operation{ours: side{do: ours}, peers: append(peers, s.others(wrapExportRelease)...)}
}

// plain is a batch through an ArrowArray: exported, imported and released, on both sides.
func plain(s shape) operation {
	schema := s.rec.Schema()
	out := new(cdata.CArrowArray)
	ours := func(n int) {
		for range n {
			check(cdevice.ExportRecordBatch(s.batch, out, nil))
			must(cdevice.ImportRecordBatchWithSchema(out, schema)).Release()
		}
	}
	peers := []peer{{name: "cdata", do: func(n int) {
		for range n {
			*out = cdata.CArrowArray{}
			cdata.ExportArrowRecordBatch(s.rec, out, nil)
			must(cdata.ImportCRecordBatchWithSchema(out, schema)).Release()
		}
	}}}
	return operation{ours: side{do: ours}, peers: append(peers, s.others(plainBothWays)...)}
}

// The import operations get their structs from the same C producer on all sides.

func importing(s shape) operation {
	ours, end := importer(s)
	peers := append(cdataImport(s), s.floor(importRelease)...)
	return operation{ours: side{do: ours}, peers: append(peers, s.others(importRelease)...), close: end}
}

// cdataImport ends with an arrow.RecordBatch, all of whose columns are there.
func cdataImport(s shape) []peer {
	in, producer := new(carray), s.producer()
	schema := s.rec.Schema()
	do := func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			must(cdata.ImportCRecordBatchWithSchema(in.plain(), schema)).Release()
		}
	}
	return []peer{{name: "cdata", do: do, close: producer.Close}}
}

func allColumns(rec arrow.RecordBatch) int { return int(rec.NumCols()) }

func addressOf(c *cdevice.CArrowDeviceArray) uintptr { return uintptr(unsafe.Pointer(c)) }

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
		peers := append(cdataImport(s), s.floor(name)...)
		return operation{ours: side{do: ours}, peers: append(peers, s.others(name)...), close: producer.Close}
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
	return operation{ours: side{do: ours}, peers: append(cdataSum(s), s.others(importValues)...), close: producer.Close}
}

func cdataSum(s shape) []peer {
	in, producer := new(carray), s.producer()
	schema := s.rec.Schema()
	total := int64(0)
	do := func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			rec := must(cdata.ImportCRecordBatchWithSchema(in.plain(), schema))
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
	return operation{ours: side{do: ours}, peers: s.others(validation), close: func() {
		batch.Release()
		producer.Close()
	}}
}
