//go:build cgo

package main

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/bench/peers"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Exports to a consumer in C. A program in Go hands a batch over by a call into C: an export that is "released in C" is
// one such call, in which the consumer calls release of the one struct. A consumer with a thread has a queue: it gets as
// many structs as heldArrays says in one call, each of a batch of its own, and the exporter waits until the thread has
// released them. All sides in Go make these calls. Libraries in other languages call the consumer directly, as their
// programs do.
const (
	exportToC      = "export, released in C"
	exportToThread = "export, released on another thread"
	wrapToC        = "wrap+export, released in C"
	wrapToThread   = "wrap+export, released on another thread"
)

func exportOperations(sub subject) []measurement {
	all := []measurement{{exportToC, exporting(exportToC, false, exportAgain)}, {wrapToC, exporting(wrapToC, false, wrapAndExport)}}
	if sub.name == "int64" && sub.columns <= 1000 {
		all = append(all,
			measurement{exportToThread, exporting(exportToC, true, exportAgain)},
			measurement{wrapToThread, exporting(wrapToC, true, wrapAndExport)})
	}
	return all
}

// exporter is how a side fills a struct with a record batch. end releases what the side holds of the batch.
type exporter func(rec arrow.RecordBatch) (export func(out *cdevice.CArrowDeviceArray), end func())

// exportAgain exports a batch that was wrapped before.
func exportAgain(rec arrow.RecordBatch) (export func(out *cdevice.CArrowDeviceArray), end func()) {
	batch := must(cdevice.WrapRecordBatch(rec, device.CPUDevice()))
	return func(out *cdevice.CArrowDeviceArray) { check(cdevice.ExportRecordBatch(batch, out, nil)) }, batch.Release
}

func wrapAndExport(rec arrow.RecordBatch) (export func(out *cdevice.CArrowDeviceArray), end func()) {
	return func(out *cdevice.CArrowDeviceArray) {
		batch := must(cdevice.WrapRecordBatch(rec, device.CPUDevice()))
		check(cdevice.ExportRecordBatch(batch, out, nil))
		batch.Release()
	}, func() {}
}

func cdataExport(rec arrow.RecordBatch) (export func(out *cdevice.CArrowDeviceArray), end func()) {
	return func(out *cdevice.CArrowDeviceArray) { cdata.ExportArrowRecordBatch(rec, plain(out), nil) }, func() {}
}

// exporting measures exports, with a consumer for each side. name is the operation of libraries in other languages.
func exporting(name string, elsewhere bool, of exporter) func(shape) operation {
	return func(s shape) operation {
		recs := s.batches(held(s.columns, elsewhere))
		ours, end := exports(recs, elsewhere, of)
		theirs, endTheirs := exports(recs, elsewhere, cdataExport)
		peers := append([]peer{{name: "cdata", do: theirs, close: endTheirs}}, s.floor(name, elsewhere)...)
		return operation{
			ours:  side{do: ours},
			peers: append(peers, s.others(name, elsewhere)...),
			least: len(recs),
			close: func() {
				end()
				releaseAll(recs)
			},
		}
	}
}

// held is how many structs a consumer has.
func held(columns int, elsewhere bool) int {
	if elsewhere {
		return heldArrays(columns)
	}
	return 1
}

// exports fills a struct with each record batch, and has a consumer release them.
func exports(recs []arrow.RecordBatch, elsewhere bool, of exporter) (do func(n int), end func()) {
	c := must(peers.NewConsumer(len(recs), elsewhere))
	var all []func(*cdevice.CArrowDeviceArray)
	var ends []func()
	for _, rec := range recs {
		export, end := of(rec)
		all, ends = append(all, export), append(ends, end)
	}
	do = func(n int) {
		for n > 0 {
			held := min(n, len(all))
			for i, export := range all[:held] {
				export(&c.Arrays[i])
			}
			c.Release(held)
			n -= held
		}
	}
	return do, inOrder(append(ends, c.Close))
}

// inOrder returns a function that calls all of them.
func inOrder(all []func()) func() {
	return func() {
		for _, one := range all {
			one()
		}
	}
}

// batches returns so many batches of the shape. Release them.
func (s shape) batches(n int) (recs []arrow.RecordBatch) {
	for range n {
		recs = append(recs, s.sub.newBatch(s.rec.Schema()))
	}
	return recs
}

func releaseAll(recs []arrow.RecordBatch) {
	for _, rec := range recs {
		rec.Release()
	}
}
