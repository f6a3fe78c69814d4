package metamorphic

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations with one variable of type arrow.Schema, which is assigned anew before each.

func init() {
	register(
		&verb{name: "import by variable", weight: 5, draw: drawByVariable, expect: expectByVariable, do: doByVariable},
		&verb{name: "wrap by variable", weight: 3, draw: drawWrapByVariable, expect: expectWrapByVariable, do: doWrapByVariable},
	)
}

// variable is the variable with another schema.
func (r *run) variable(s *arrow.Schema) *arrow.Schema {
	v, ok := r.values["the variable"].(*arrow.Schema)
	if !ok {
		v = new(arrow.Schema)
		r.values["the variable"] = v
	}
	*v = *s
	return v
}

func drawByVariable(g *generator) (Op, bool) {
	p := g.one(given(isBatch), producerKind)
	if p == nil {
		return Op{}, false
	}
	how := "device"
	switch g.IntN(4) {
	case 0:
		how = "plain"
	case 1:
		how = "cdata"
	}
	o := Op{Out: g.name(batchKind), On: []string{p.name}, Args: []string{how}}
	if how == "cdata" {
		o.Out = g.name(recordKind)
	}
	return o, true
}

func expectByVariable(m *model, o Op) (string, bool) {
	p := m.get(o.On[0], producerKind)
	if p == nil || !p.batch || p.at != cpu && o.arg(0) != "device" {
		return "", false
	}
	if o.arg(0) == "cdata" {
		if p.hasExtensions() {
			return "", false
		}
		m.add(o.Out, recordKind, object{table: p.table, at: cpu}, p.holds...)
	} else {
		m.add(o.Out, batchKind, *p, p.holds...)
	}
	m.release(p)
	return "ok", true
}

// doByVariable imports a struct with the schema of the variable. A batch has a copy of it; a record batch of package cdata has the variable
// itself, as arrow-go's has, and so gets another schema here.
func doByVariable(r *run, o Op) string {
	p, t := value[*foreign.Producer](r, o.On[0]), r.tables[o.On[0]]
	s := r.variable(t.schema())
	opts := r.importOptions(r.at(t.at))
	switch o.arg(0) {
	case "device":
		return made(r, o.Out)(cdevice.ImportRecordBatchWithSchema(p.Device(), s, opts...))
	case "plain":
		return made(r, o.Out)(cdevice.ImportRecordBatchWithSchema(p.Plain(), s, opts...))
	}
	rec, err := r.library(t.table).importKnown(p.Plain(), s)
	if err != nil {
		return err.Error()
	}
	defer rec.Release()
	if rec.Schema() != s {
		return "a record batch with another schema"
	}
	if !t.hasBuffers() {
		r.values[o.Out] = rec
		rec.Retain()
		r.values["the variable"] = nil // it is the record batch's
		return "ok"
	}
	r.values[o.Out] = array.NewRecordBatch(t.schema(), rec.Columns(), rec.NumRows())
	return "ok"
}

func drawWrapByVariable(g *generator) (Op, bool) {
	s := g.spec()
	s[0] = "batch"
	return Op{Out: g.name(batchKind), Args: append(s, []string{"device", "plain", "cdata"}[g.IntN(3)])}, true
}

func expectWrapByVariable(m *model, o Op) (string, bool) {
	s := specOf(o)
	if !s.batch {
		return "", false
	}
	m.owned(m.add(o.Out, batchKind, object{table: s.table(), at: cpu}))
	return "ok", true
}

// doWrapByVariable wraps a record batch that has the variable as its schema, exports it, and imports that.
func doWrapByVariable(r *run, o Op) string {
	arr := data(r.goMemory(), specOf(o).types, o.num(2), o.num(3), uint64(o.num(4)), true)
	defer arr.Release()
	of := recordOf(arr.(*array.Struct))
	defer of.Release()
	t := specOf(o).table()
	s := r.variable(t.schema())
	rec := array.NewRecordBatch(s, of.Columns(), of.NumRows())
	defer rec.Release()

	schema := foreign.NewSchema()
	defer foreign.Forget(schema)
	got := made(r, o.Out)(exportedAndImported(rec, schema, s, o.arg(5)))
	if got != "ok" {
		return got
	}
	return r.checkSchema(t, nil, schema)
}

func exportedAndImported(rec arrow.RecordBatch, schema *cdata.CArrowSchema, s *arrow.Schema, how string) (*cdevice.RecordBatch, error) {
	plain := foreign.NewArray()
	defer foreign.Forget(plain)
	if how == "cdata" {
		cdata.ExportArrowRecordBatch(rec, plain, schema)
		return cdevice.ImportRecordBatchWithSchema(plain, s)
	}
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer b.Release()
	if how == "plain" {
		if err := cdevice.ExportRecordBatch(b, plain, schema); err != nil {
			return nil, err
		}
		return cdevice.ImportRecordBatchWithSchema(plain, s)
	}
	x := foreign.NewDeviceArray()
	defer foreign.Forget(x)
	if err := cdevice.ExportRecordBatch(b, x, schema); err != nil {
		return nil, err
	}
	return cdevice.ImportRecordBatchWithSchema(x, s)
}
