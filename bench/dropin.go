//go:build cgo

package main

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	arrowgo "github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/bench/peers"
	"github.com/arrowdevice/arrowdevice/cdata"
)

// Package cdata in place of arrow-go's package of that name: the same calls on both sides, with arrow-go's batches and
// readers. What is exported is released by a consumer in C.
const (
	dropInExport      = "cdata: export, released in C"
	dropInThread      = "cdata: export, released on another thread"
	dropInStream      = "cdata: stream, read in C"
	dropInStreamView  = "cdata: stream, export+import"
	dropInBothWays    = "cdata: export+import"
	dropInExportTo    = "cdata: export to arrow-go's import"
	dropInImportFrom  = "cdata: import of arrow-go's export"
	dropInImport      = "cdata: import, no column read"
	dropInRead        = "cdata: import, all columns read"
	dropInSchemaFirst = "cdata: schema, first time"
	dropInSchemaAgain = "cdata: schema again"
)

// inDropIn are the operations of the page's table, in their order.
var inDropIn = []string{
	dropInExport, dropInThread, dropInStream, dropInStreamView, dropInBothWays, dropInExportTo, dropInImportFrom, dropInImport, dropInRead,
	dropInSchemaFirst, dropInSchemaAgain,
}

// pair is one of the two packages.
type pair struct {
	export       func(arrow.RecordBatch, *arrowgo.CArrowArray, *arrowgo.CArrowSchema)
	take         func(*arrowgo.CArrowArray, *arrow.Schema) (arrow.RecordBatch, error)
	exportStream func(array.RecordReader, *arrowgo.CArrowArrayStream)
	takeStream   func(*arrowgo.CArrowArrayStream, *arrow.Schema) (arrio.Reader, error)
	exportSchema func(*arrow.Schema, *arrowgo.CArrowSchema)
	takeSchema   func(*arrowgo.CArrowSchema) (*arrow.Schema, error)
}

var (
	ourPackage = pair{
		cdata.ExportArrowRecordBatch, cdata.ImportCRecordBatchWithSchema, cdata.ExportRecordReader, cdata.ImportCRecordReader,
		cdata.ExportArrowSchema, cdata.ImportCArrowSchema,
	}
	arrowGosPackage = pair{
		arrowgo.ExportArrowRecordBatch, arrowgo.ImportCRecordBatchWithSchema, arrowgo.ExportRecordReader, arrowgo.ImportCRecordReader,
		arrowgo.ExportArrowSchema, arrowgo.ImportCArrowSchema,
	}
)

func dropInOperations(sub subject) (all []measurement) {
	if sub.columns > 1000 || sub.name != "int64" && sub.name != onGoHeap && sub.name != "utf8" {
		return nil
	}
	all = []measurement{
		{dropInExport, consumed(false, pair.exportAndRelease, wrapToC)},
		{dropInThread, consumed(true, pair.exportAndRelease, "")},
		{dropInStream, consumed(true, pair.streamToC, "")},
		{dropInStreamView, dropIn(pair.throughStream)},
		{dropInBothWays, bothWays(ourPackage, ourPackage)},
		{dropInExportTo, bothWays(ourPackage, arrowGosPackage)},
		{dropInImportFrom, bothWays(arrowGosPackage, ourPackage)},
		{dropInImport, dropInImports(false, importRelease)},
		{dropInRead, dropInImports(true, importView)},
	}
	if sub.name == "int64" { // a schema has no buffers
		all = append(all,
			measurement{dropInSchemaFirst, dropInSchemas(renamed)},
			measurement{dropInSchemaAgain, dropInSchemas(func(s *arrow.Schema, _ int) *arrow.Schema { return s })})
	}
	if sub.name == "int64" && (sub.columns == 1 || sub.columns == 100) {
		for _, n := range []int{2, 4} {
			all = append(all, measurement{sideBySide(dropInExport, n), dropInTogether(n)})
		}
	}
	return all
}

// dropInTogether is exports of each package on so many goroutines.
func dropInTogether(goroutines int) func(shape) operation {
	return func(s shape) operation {
		var ours, theirs []func(n int)
		var ends []func()
		for range goroutines {
			op := consumed(false, pair.exportAndRelease, "")(s)
			ours, theirs, ends = append(ours, op.ours.do), append(theirs, op.peers[0].do), append(ends, op.end)
		}
		return operation{ours: side{do: divide(ours)}, peers: []peer{{name: "cdata", do: divide(theirs)}}, close: inOrder(ends)}
	}
}

// dropIn is an operation of each package.
func dropIn(of func(p pair, s shape) func(n int)) func(shape) operation {
	return func(s shape) operation {
		return operation{
			ours:  side{do: of(ourPackage, s)},
			peers: []peer{{name: "cdata", do: of(arrowGosPackage, s)}},
			least: heldArrays(s.columns),
		}
	}
}

// heldArrays is how many structs a consumer in C holds before it releases them, in one call from Go: what hands
// them over is no part of the exchange, and is to count little.
func heldArrays(columns int) int { return int(256 / math.Sqrt(float64(columns))) }

// inTurn is an arrow-go reader that gives batches in turns.
type inTurn struct {
	repeated
	recs []arrow.RecordBatch
}

func (r *inTurn) Next() bool {
	r.rec = r.recs[max(r.left, 0)%len(r.recs)]
	return r.repeated.Next()
}

// consumed is an operation of which each package has a consumer of its own. The batches that it holds differ. like is the operation of libraries in
// other languages.
func consumed(elsewhere bool, of func(p pair, recs []arrow.RecordBatch, c *peers.Consumer) func(n int), like string) func(shape) operation {
	return func(s shape) operation {
		recs := s.batches(heldArrays(s.columns))
		var all []*peers.Consumer
		op := dropIn(func(p pair, s shape) func(n int) {
			c := must(peers.NewConsumer(len(recs), elsewhere))
			all = append(all, c)
			return of(p, recs, c)
		})(s)
		op.peers = append(op.peers, s.others(like, false)...)
		op.close = func() {
			for _, c := range all {
				c.Close()
			}
			releaseAll(recs)
		}
		return op
	}
}

func (p pair) exportAndRelease(recs []arrow.RecordBatch, c *peers.Consumer) func(n int) {
	return func(n int) {
		for n > 0 {
			held := min(n, len(c.Arrays))
			for i, rec := range recs[:held] {
				p.export(rec, plain(&c.Arrays[i]), nil)
			}
			c.Release(held)
			n -= held
		}
	}
}

func (p pair) streamToC(recs []arrow.RecordBatch, c *peers.Consumer) func(n int) {
	return func(n int) {
		out := new(arrowgo.CArrowArrayStream)
		p.exportStream(&inTurn{repeated{recs[0], n}, recs}, out)
		mustBeZero(n - must(c.Read(out)))
	}
}

func (p pair) throughStream(s shape) func(n int) {
	return func(n int) {
		out := new(arrowgo.CArrowArrayStream)
		p.exportStream(&repeated{s.rec, n}, out)
		in := must(p.takeStream(out, nil))
		defer in.(array.RecordReader).Release()
		for range n {
			readAll(must(in.Read()))
		}
	}
}

// bothWays is a batch that is exported by one package, and imported and read by another, beside arrow-go's package
// both ways.
func bothWays(from, to pair) func(shape) operation {
	do := func(from, to pair, s shape) func(n int) {
		out, schema := new(arrowgo.CArrowArray), s.rec.Schema()
		return func(n int) {
			for range n {
				*out = arrowgo.CArrowArray{}
				from.export(s.rec, out, nil)
				rec := must(to.take(out, schema))
				readAll(rec)
				rec.Release()
			}
		}
	}
	return func(s shape) operation {
		return operation{
			ours:  side{do: do(from, to, s)},
			peers: []peer{{name: "cdata", do: do(arrowGosPackage, arrowGosPackage, s)}},
		}
	}
}

// dropInImports gets its structs from a producer in C. Libraries in other languages do not read values.
func dropInImports(read bool, like string) func(shape) operation {
	return func(s shape) operation {
		var all []*peers.Producer
		op := dropIn(func(p pair, s shape) func(n int) {
			in, producer, schema := new(carray), s.producer(), s.rec.Schema()
			all = append(all, producer)
			return func(n int) {
				for range n {
					producer.Give(&in.CArrowDeviceArray)
					rec := must(p.take(plain(&in.CArrowDeviceArray), schema))
					if read {
						readAll(rec)
					}
					rec.Release()
				}
			}
		})(s)
		op.peers = append(op.peers, s.others(like, false)...)
		op.close = func() {
			for _, p := range all {
				p.Close()
			}
		}
		return op
	}
}

// readAll reads the first and the last value of each column.
func readAll(rec arrow.RecordBatch) {
	sum := int64(0)
	for _, column := range rec.Columns() {
		last := column.Len() - 1
		if column.IsNull(0) || column.IsNull(last) {
			panic("bench: no value is null")
		}
		switch c := column.(type) {
		case *array.Int64:
			sum += c.Value(0) + c.Value(last)
		case *array.String:
			sum += int64(len(c.Value(0)) + len(c.Value(last)))
		}
	}
	if sum < 0 {
		panic("bench: no value is negative")
	}
}

// dropInSchemas exports and imports a schema, or one of its own each time.
func dropInSchemas(numbered func(s *arrow.Schema, number int) *arrow.Schema) func(shape) operation {
	return func(s shape) operation {
		made := 0
		open := func(p pair) side {
			out, schemas := new(arrowgo.CArrowSchema), []*arrow.Schema(nil)
			return side{
				prepare: func(n int) {
					schemas = schemas[:0]
					for range n {
						schemas = append(schemas, numbered(s.rec.Schema(), made))
						made++
					}
				},
				do: func(n int) {
					for i := range n {
						*out = arrowgo.CArrowSchema{}
						p.exportSchema(schemas[i], out)
						must(p.takeSchema(out))
					}
				},
			}
		}
		theirs := open(arrowGosPackage)
		return operation{ours: open(ourPackage), peers: []peer{{name: "cdata", do: theirs.do, prepare: theirs.prepare}}}
	}
}
