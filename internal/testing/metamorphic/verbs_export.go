package metamorphic

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations that export structs, and those of their consumer.

func init() {
	register(
		&verb{name: "export", weight: 14, draw: drawExport, expect: expectExport, do: doExport},
		&verb{name: "read struct", weight: 8, draw: drawReadStruct, expect: expectReadStruct, do: doReadStruct},
		&verb{name: "import struct", weight: 6, draw: drawImportStruct, expect: expectImportStruct, do: doImportStruct},
	)
}

func drawExport(g *generator) (Op, bool) {
	b := g.one(nil, batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	how := "device"
	if b.ready() && g.IntN(3) == 0 {
		how = "plain"
	}
	return Op{Out: g.name(structKind), On: []string{b.name}, Args: []string{how, []string{"c", "go"}[g.IntN(2)], []string{"schema", ""}[g.IntN(2)]}}, true
}

func expectExport(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || o.arg(0) == "plain" && !b.ready() {
		return "", false
	}
	x := *b
	x.plain = o.arg(0) == "plain"
	if x.plain {
		x.at = cpu
	}
	m.add(o.Out, structKind, x, b.holds...)
	for _, h := range b.holds {
		h.exported = h.exported || !x.plain && b.at != cpu
	}
	return "ok", true
}

// doExport fills a struct in memory of C or of Go. The schema is exported, compared and released at once.
func doExport(r *run, o Op) string {
	var schema *cdata.CArrowSchema
	if o.arg(2) == "schema" {
		schema = foreign.NewSchema()
		defer foreign.Forget(schema)
	}
	var got string
	if o.arg(0) == "plain" {
		got = exportPlain(r, o, schema)
	} else {
		x := foreign.NewDeviceArray()
		if o.arg(1) == "go" {
			foreign.Forget(x)
			x = new(cdevice.CArrowDeviceArray)
		} else {
			r.later(func() { foreign.Forget(x) })
		}
		got = errorText(exportTo(r.values[o.On[0]], x, schema))
		r.values[o.Out] = x
	}
	if got != "ok" {
		delete(r.values, o.Out) // it was not filled
		return got
	}
	if schema == nil {
		return got
	}
	return r.checkSchema(r.tables[o.On[0]].table, r.values[o.On[0]], schema)
}

func exportTo[S cdevice.ArrayStruct](v any, out *S, schema *cdata.CArrowSchema) error {
	if b, ok := v.(*cdevice.RecordBatch); ok {
		return cdevice.ExportRecordBatch(b, out, schema)
	}
	return cdevice.ExportArray(v.(*cdevice.Array), out, schema)
}

// exportPlain exports memory of the CPU. Of other memory, the result of AsCPU is exported, or a copy.
func exportPlain(r *run, o Op, schema *cdata.CArrowSchema) string {
	x := foreign.NewArray()
	if o.arg(1) == "go" {
		foreign.Forget(x)
		x = new(cdata.CArrowArray)
	} else {
		r.later(func() { foreign.Forget(x) })
	}
	r.values[o.Out] = x
	switch b := r.values[o.On[0]].(type) {
	case *cdevice.RecordBatch:
		if !r.accessible(b.DeviceID()) {
			if text := errorText(cdevice.ExportRecordBatch(b, x, schema)); text != failed("ErrNotSupported") {
				return text
			}
		}
		c, err := r.onCPU(o.Out, b)
		if err != nil {
			return err.Error()
		}
		defer c.Release()
		return errorText(cdevice.ExportRecordBatch(c, x, schema))
	case *cdevice.Array:
		if !r.accessible(b.DeviceID()) {
			if text := errorText(cdevice.ExportArray(b, x, schema)); text != failed("ErrNotSupported") {
				return text
			}
		}
		c, err := r.arrayOnCPU(o.Out, b)
		if err != nil {
			return err.Error()
		}
		defer c.Release()
		return errorText(cdevice.ExportArray(c, x, schema))
	}
	return "no batch"
}

// onCPU returns a batch as the CPU's, or a copy of it, which the caller releases. Beside a copy, the object keeps the batch.
func (r *run) onCPU(name string, b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	if r.accessible(b.DeviceID()) {
		return b.AsCPU(background)
	}
	r.keep(name, b)
	return b.CopyTo(background, r.at(cpu))
}

// arrayOnCPU is onCPU for an array.
func (r *run) arrayOnCPU(name string, a *cdevice.Array) (*cdevice.Array, error) {
	if r.accessible(a.DeviceID()) {
		return a.AsCPU(background)
	}
	r.keep(name, a)
	return a.CopyTo(background, r.at(cpu))
}

// checkSchema imports the schema of what was exported: with arrow-go, unless it has extension types or ordered dictionaries, which arrow-go does not import.
func (r *run) checkSchema(t table, of any, schema *cdata.CArrowSchema) string {
	importField, importSchema := cdata.ImportCArrowField, cdata.ImportCArrowSchema
	if slices.ContainsFunc(t.types, func(name string) bool {
		d, ok := caseOf(name).Type.(*arrow.DictionaryType)
		return caseOf(name).Type.ID() == arrow.EXTENSION || ok && d.Ordered
	}) {
		importField, importSchema = cdevice.ImportField, cdevice.ImportSchema
	}
	if !t.batch {
		field, err := importField(schema)
		if err != nil {
			return err.Error()
		}
		if want := caseOf(t.types[0]).Type; !arrow.TypeEqual(field.Type, want) {
			return "the type " + field.Type.String() + ", not " + want.String()
		}
		if a, ok := of.(*cdevice.Array); ok { // arrays of arrow-go have no field
			return sameField(a.Field(), field)
		}
		return "ok"
	}
	got, err := importSchema(schema)
	if err != nil {
		return err.Error()
	}
	if want := t.schema(); !got.Equal(want) {
		return "the schema " + got.String() + ", not " + want.String()
	}
	if b, ok := of.(interface{ Schema() *arrow.Schema }); ok {
		return sameMetadata(b.Schema().Metadata(), got.Metadata())
	}
	return "ok"
}

func drawReadStruct(g *generator) (Op, bool) {
	x := g.one(given(isReady, isWhole), structKind)
	if x == nil {
		return Op{}, false
	}
	return Op{On: []string{x.name}, Args: []string{[]string{"here", "thread"}[g.IntN(2)]}}, true
}

// isWhole reports whether no child of a struct was moved out.
func isWhole(x *object) bool { return !x.pieces }

func expectReadStruct(m *model, o Op) (string, bool) {
	x := m.get(o.On[0], structKind)
	if x == nil || !x.ready() || x.pieces {
		return "", false
	}
	return x.String(), true
}

func doReadStruct(r *run, o Op) string {
	x := r.tables[o.On[0]]
	a, ok := r.values[o.On[0]].(*cdata.CArrowArray)
	dev := r.at(cpu)
	if !ok {
		d := value[*cdevice.CArrowDeviceArray](r, o.On[0])
		a, dev = foreign.ArrayOf(d), r.at(x.at)
		if id := foreign.DeviceOf(d); id != dev.ID() {
			return "memory of " + id.String() + ", not of " + dev.ID().String()
		}
		waitForEvent(dev, d)
	}
	arr, err := foreign.Read(a, x.dataType(), r.fetch(dev, o.arg(0) == "thread"))
	if err != nil {
		return err.Error()
	}
	defer arr.Release()
	return seenStruct(x.table, arr)
}

// waitForEvent waits for the event of a struct, if it has one.
func waitForEvent(dev device.Device, x *cdevice.CArrowDeviceArray) {
	handle := foreign.Event(x)
	if handle == 0 {
		return
	}
	e, err := dev.WrapEvent(handle)
	must(err)
	must(e.Synchronize(background))
	must(e.Close())
}

// dataType is the type of the array that a struct is.
func (t table) dataType() arrow.DataType {
	if !t.batch {
		return caseOf(t.types[0]).Type
	}
	return arrow.StructOf(t.schema().Fields()...)
}

func seenStruct(t table, arr arrow.Array) string {
	if !t.batch {
		return seenArray(arr)
	}
	s := arr.(*array.Struct)
	columns := make([]arrow.Array, s.NumField())
	for i := range columns {
		columns[i] = s.Field(i)
	}
	return seen(t.names, columns, s.Len(), true)
}

func drawImportStruct(g *generator) (Op, bool) {
	x := g.one(given(isWhole), structKind)
	if x == nil {
		return Op{}, false
	}
	return Op{Out: g.name(ofTable(x.table)), On: []string{x.name}}, true
}

func expectImportStruct(m *model, o Op) (string, bool) {
	x := m.get(o.On[0], structKind)
	if x == nil || x.pieces {
		return "", false
	}
	b := m.add(o.Out, ofTable(x.table), *x, x.holds...)
	if b.plain {
		b.plain, b.at = false, cpu
	}
	m.release(x)
	return "ok", true
}

func doImportStruct(r *run, o Op) string {
	x := r.tables[o.On[0]]
	opts := r.importOptions(r.at(x.at))
	if a, ok := r.values[o.On[0]].(*cdata.CArrowArray); ok {
		return importStruct(r, o.Out, x.table, a, nil, opts)
	}
	return importStruct(r, o.Out, x.table, value[*cdevice.CArrowDeviceArray](r, o.On[0]), nil, opts)
}
