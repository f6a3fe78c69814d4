package metamorphic

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	theirs "github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations of a package cdata: this module's, and in some worlds arrow-go's.

func init() {
	register(
		&verb{name: "record", weight: 3, draw: drawRecord, expect: expectRecord, do: doRecord},
		&verb{name: "cdata import", weight: 7, draw: drawCDataImport, expect: expectCDataImport, do: doCDataImport},
		&verb{name: "cdata export", weight: 6, draw: drawCDataExport, expect: expectCDataExport, do: doCDataExport},
		&verb{name: "cdata schema", weight: 1, draw: drawCDataSchema, expect: expectCDataSchema, do: doCDataSchema},
		&verb{name: "record slice", weight: 4, draw: drawRecordSlice, expect: expectRecordSlice, do: doRecordSlice},
		&verb{name: "record column", weight: 4, draw: drawRecordColumn, expect: expectRecordColumn, do: doRecordColumn},
	)
}

// library is the functions of a package cdata.
type library struct {
	exportRecord func(arrow.RecordBatch, *cdata.CArrowArray, *cdata.CArrowSchema)
	exportArray  func(arrow.Array, *cdata.CArrowArray, *cdata.CArrowSchema)
	exportSchema func(*arrow.Schema, *cdata.CArrowSchema)
	exportReader func(array.RecordReader, *cdata.CArrowArrayStream)
	importRecord func(*cdata.CArrowArray, *cdata.CArrowSchema) (arrow.RecordBatch, error)
	importKnown  func(*cdata.CArrowArray, *arrow.Schema) (arrow.RecordBatch, error)
	importArray  func(*cdata.CArrowArray, *cdata.CArrowSchema) (arrow.Field, arrow.Array, error)
	importTyped  func(*cdata.CArrowArray, arrow.DataType) (arrow.Array, error)
	importSchema func(*cdata.CArrowSchema) (*arrow.Schema, error)
	importReader func(*cdata.CArrowArrayStream, *arrow.Schema) (arrio.Reader, error)
}

var (
	ownLibrary = &library{
		cdata.ExportArrowRecordBatch, cdata.ExportArrowArray, cdata.ExportArrowSchema, cdata.ExportRecordReader,
		cdata.ImportCRecordBatch, cdata.ImportCRecordBatchWithSchema, cdata.ImportCArray, cdata.ImportCArrayWithType,
		cdata.ImportCArrowSchema, cdata.ImportCRecordReader,
	}
	upstreamLibrary = &library{
		theirs.ExportArrowRecordBatch, theirs.ExportArrowArray, theirs.ExportArrowSchema, theirs.ExportRecordReader,
		theirs.ImportCRecordBatch, theirs.ImportCRecordBatchWithSchema, theirs.ImportCArray, theirs.ImportCArrayWithType,
		theirs.ImportCArrowSchema, theirs.ImportCRecordReader,
	}
)

// library returns the package that is at work for a table.
func (r *run) library(t table) *library {
	if r.upstream && t.isForUpstream() {
		return upstreamLibrary
	}
	return ownLibrary
}

// isForUpstream reports whether arrow-go's cdata does with the table what this module's does. It releases the memory of arrays that have no
// buffers at once, applies the offset of structs twice, leaks the sizes of views, loses the order of dictionaries, refuses those of a column of
// nulls alone, which are empty and may have no buffers, and has other members in the structs of nested types.
func (t table) isForUpstream() bool {
	if t.rows == 0 || len(t.types) == 0 {
		return false
	}
	for i, name := range t.types {
		if i < len(t.values) && caseOf(name).Type.ID() == arrow.DICTIONARY && !slices.ContainsFunc(t.values[i], func(v string) bool { return v != null }) {
			return false
		}
	}
	return !slices.ContainsFunc(t.types, func(name string) bool {
		switch dt := caseOf(name).Type.(type) {
		case *arrow.BooleanType, *arrow.StringType, *arrow.BinaryType, *arrow.LargeStringType, *arrow.LargeBinaryType, *arrow.FixedSizeBinaryType:
			return false
		case *arrow.ListType:
			return arrow.IsNested(dt.Elem().ID()) || dt.Elem().ID() == arrow.DICTIONARY
		case *arrow.DictionaryType:
			return dt.Ordered
		case *arrow.NullType, arrow.ExtensionType, arrow.NestedType:
			return true
		case arrow.FixedWidthDataType:
			return false
		}
		return true
	})
}

// hasExtensions reports whether a package cdata imports a column as its storage.
func (t table) hasExtensions() bool {
	return slices.ContainsFunc(t.types, func(name string) bool { return caseOf(name).Type.ID() == arrow.EXTENSION })
}

// isJoint reports whether an object has columns of several memories.
func (o *object) isJoint() bool {
	return slices.ContainsFunc(o.holds, func(h *object) bool { return len(h.holds) > 0 })
}

func isOnCPU(o *object) bool { return o.at == cpu }

func hasNoExtensions(o *object) bool { return !o.hasExtensions() }

func drawRecord(g *generator) (Op, bool) {
	return Op{Out: g.name(recordKind), Args: g.spec()}, true
}

func expectRecord(m *model, o Op) (string, bool) {
	s := specOf(o)
	if len(s.types) == 0 {
		return "", false
	}
	m.add(o.Out, recordKind, object{table: s.table(), at: cpu})
	return "ok", true
}

// doRecord makes a record batch or an array in memory of Go.
func doRecord(r *run, o Op) string {
	s := specOf(o)
	arr := data(r.goMemory(), s.types, s.offset, s.rows, s.seed, s.batch)
	if !s.batch {
		r.values[o.Out] = arr
		return "ok"
	}
	defer arr.Release()
	r.values[o.Out] = recordOf(arr.(*array.Struct))
	return "ok"
}

func drawCDataImport(g *generator) (Op, bool) {
	p := g.one(given(isOnCPU, hasNoExtensions), producerKind)
	if p == nil {
		return Op{}, false
	}
	return Op{Out: g.name(recordKind), On: []string{p.name}, Args: []string{[]string{"c", "known"}[g.IntN(2)]}}, true
}

func expectCDataImport(m *model, o Op) (string, bool) {
	p := m.get(o.On[0], producerKind)
	if p == nil || p.at != cpu || p.hasExtensions() || p.isBare() {
		return "", false
	}
	m.add(o.Out, recordKind, object{table: p.table, at: cpu}, p.holds...)
	m.release(p)
	return "ok", true
}

func doCDataImport(r *run, o Op) string {
	p, t := value[*foreign.Producer](r, o.On[0]), r.tables[o.On[0]].table
	return r.cdataImport(o.Out, t, p.Plain(), r.producerSchema(p, t, o.arg(0)))
}

// cdataImport imports a struct as a record batch or an array of arrow-go. Without a schema, Go knows it.
func (r *run) cdataImport(out string, t table, a *cdata.CArrowArray, schema *cdata.CArrowSchema) string {
	l := r.library(t)
	switch {
	case t.batch && schema != nil:
		return made(r, out)(l.importRecord(a, schema))
	case t.batch:
		return made(r, out)(l.importKnown(a, t.schema()))
	case schema != nil:
		field, arr, err := l.importArray(a, schema)
		if want := caseOf(t.types[0]).Type; err == nil && !arrow.TypeEqual(field.Type, want) {
			return "the type " + field.Type.String() + ", not " + want.String()
		}
		return made(r, out)(arr, err)
	}
	return made(r, out)(l.importTyped(a, caseOf(t.types[0]).Type))
}

func drawCDataExport(g *generator) (Op, bool) {
	b := g.one(nil, recordKind)
	if b == nil {
		return Op{}, false
	}
	return Op{Out: g.name(structKind), On: []string{b.name}, Args: []string{[]string{"c", "go"}[g.IntN(2)], []string{"schema", ""}[g.IntN(2)]}}, true
}

func expectCDataExport(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], recordKind)
	if b == nil {
		return "", false
	}
	m.add(o.Out, structKind, object{table: b.table, at: cpu, plain: true}, b.holds...)
	return "ok", true
}

// doCDataExport exports a record batch or an array of arrow-go. What arrow-go exports of several memories is several in its structs, so
// that a child holds its own only.
func doCDataExport(r *run, o Op) string {
	b := r.tables[o.On[0]]
	l := r.library(b.table)
	if b.isJoint() {
		l = ownLibrary
	}
	x := foreign.NewArray()
	if o.arg(0) == "go" {
		foreign.Forget(x)
		x = new(cdata.CArrowArray)
	} else {
		r.later(func() { foreign.Forget(x) })
	}
	var schema *cdata.CArrowSchema
	if o.arg(1) == "schema" {
		schema = foreign.NewSchema()
		defer foreign.Forget(schema)
	}
	if l == upstreamLibrary { // which wants zeros
		*x = cdata.CArrowArray{}
		if schema != nil {
			*schema = cdata.CArrowSchema{}
		}
	}
	r.values[o.Out] = x
	if rec, ok := r.values[o.On[0]].(arrow.RecordBatch); ok {
		l.exportRecord(rec, x, schema)
	} else {
		l.exportArray(value[arrow.Array](r, o.On[0]), x, schema)
	}
	if !foreign.CountsNulls(x) {
		return "nulls that are not counted"
	}
	if schema == nil {
		return "ok"
	}
	return r.checkSchema(b.table, r.values[o.On[0]], schema)
}

func drawCDataSchema(g *generator) (Op, bool) {
	b := g.one(given(hasNoExtensions), batchKind, recordKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}}, true
}

func expectCDataSchema(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, recordKind)
	if b == nil || b.hasExtensions() {
		return "", false
	}
	return b.schema().String(), true
}

// doCDataSchema exports a schema and imports it again.
func doCDataSchema(r *run, o Op) string {
	t := r.tables[o.On[0]].table
	l := r.library(t)
	c := foreign.NewSchema()
	defer foreign.Forget(c)
	if l == upstreamLibrary {
		*c = cdata.CArrowSchema{}
	}
	l.exportSchema(t.schema(), c)
	s, err := l.importSchema(c)
	if err != nil {
		return err.Error()
	}
	if !s.Equal(t.schema()) {
		return "another schema: " + s.String()
	}
	return s.String()
}

func drawRecordSlice(g *generator) (Op, bool) {
	b := g.one(nil, recordKind)
	if b == nil {
		return Op{}, false
	}
	i, j := g.bounds(b.rows)
	return Op{Out: g.name(recordKind), On: []string{b.name}, Args: []string{num(i), num(j)}}, true
}

func expectRecordSlice(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], recordKind)
	if b == nil || o.num(1) > b.rows || !b.hasBuffers() {
		return "", false
	}
	m.add(o.Out, recordKind, object{table: b.slice(o.num(0), o.num(1)), at: b.at}, b.holds...)
	return "ok", true
}

// hasBuffers reports whether each array has buffers: arrays of arrow-go hold memory by its buffers.
func (t table) hasBuffers() bool {
	return t.rows > 0 && len(t.types) > 0 && !slices.ContainsFunc(t.types, hasNoBuffers)
}

// isBare reports whether the table is an array without buffers.
func (t table) isBare() bool { return !t.batch && hasNoBuffers(t.types[0]) }

func hasNoBuffers(name string) bool {
	switch dt := caseOf(name).Type.(type) {
	case *arrow.NullType:
		return true
	case *arrow.StructType:
		return dt.NumFields() == 0
	}
	return false
}

func doRecordSlice(r *run, o Op) string {
	i, j := int64(o.num(0)), int64(o.num(1))
	if rec, ok := r.values[o.On[0]].(arrow.RecordBatch); ok {
		r.values[o.Out] = rec.NewSlice(i, j)
	} else {
		r.values[o.Out] = array.NewSlice(value[arrow.Array](r, o.On[0]), i, j)
	}
	return "ok"
}

func drawRecordColumn(g *generator) (Op, bool) {
	b := g.one(given(func(b *object) bool { return b.batch && b.hasBuffers() }), recordKind)
	if b == nil {
		return Op{}, false
	}
	return Op{Out: g.name(recordKind), On: []string{b.name}, Args: []string{num(g.IntN(len(b.types)))}}, true
}

func expectRecordColumn(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], recordKind)
	if b == nil || !b.batch || o.num(0) >= len(b.types) || !b.hasBuffers() {
		return "", false
	}
	m.add(o.Out, recordKind, object{table: b.column(o.num(0)), at: b.at}, b.holds...)
	return "ok", true
}

// doRecordColumn keeps a column, which outlives its record batch.
func doRecordColumn(r *run, o Op) string {
	column := value[arrow.RecordBatch](r, o.On[0]).Column(o.num(0))
	if column == nil {
		return fmt.Sprintf("no column %d", o.num(0))
	}
	column.Retain()
	r.values[o.Out] = column
	return "ok"
}
