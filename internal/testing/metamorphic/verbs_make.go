package metamorphic

import (
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations that make objects of nothing, or of a producer.

func init() {
	register(
		&verb{name: "produce", weight: 14, draw: drawProduce, expect: expectProduce, do: doProduce},
		&verb{name: "import", weight: 14, draw: drawImport, expect: expectImport, do: doImport},
		&verb{name: "wrap", weight: 5, draw: drawWrap, expect: expectWrap, do: doWrap},
		&verb{name: "new", weight: 4, draw: drawNew, expect: expectNew, do: doNew},
	)
}

// spec is the description of values in the arguments of an operation: batch or array, types, offset, rows, seed.
type spec struct {
	batch        bool
	types        []string
	offset, rows int
	seed         uint64
}

func (g *generator) spec() []string {
	what, types := "batch", g.shapes[g.IntN(len(g.shapes))]
	if g.IntN(3) == 0 {
		what, types = "array", types[:1]
	}
	return []string{what, joined(types), num([]int{0, 0, 0, 1, 3, 8}[g.IntN(6)]), num(g.rows()), num(g.IntN(1000))}
}

func specOf(o Op) spec {
	return spec{o.arg(0) == "batch", split(o.arg(1)), o.num(2), o.num(3), uint64(o.num(4))}
}

func (s spec) table() table { return tableOf(s.types, s.offset, s.rows, s.seed, s.batch) }

func (s spec) kind() kind {
	if s.batch {
		return batchKind
	}
	return arrayKind
}

// ofTable is the kind of a batch or array with a table.
func ofTable(t table) kind {
	if t.batch {
		return batchKind
	}
	return arrayKind
}

func drawProduce(g *generator) (Op, bool) {
	at, flavour, s := home, []string{"", "", "misaligned", "event", "event", "absent"}[g.IntN(6)], g.spec()
	switch {
	case flavour == "absent":
		if g.IntN(2) == 0 {
			s[3] = "0"
		}
		at = []place{home, cpu}[g.IntN(2)]
	case g.IntN(4) == 0:
		at = cpu
	case g.m.holding && g.IntN(3) == 0:
		flavour = "held"
	}
	return Op{Out: g.name(producerKind), Args: append(s, string(at), flavour)}, true
}

func expectProduce(m *model, o Op) (string, bool) {
	s, flavour := specOf(o), o.arg(6)
	if len(s.types) == 0 && !s.batch {
		return "", false
	}
	if flavour == "held" {
		copies := buffersOf(s.table().dataType())
		if !m.holding || m.copies+copies > mostCopies {
			return "", false
		}
		m.copies += copies
	}
	p := m.add(o.Out, producerKind, object{table: s.table(), at: place(o.arg(5)), held: flavour == "held"})
	p.isIn(m.memoryOf(p))
	return "ok", true
}

// mostCopies is less than what a stream takes whose work is held back: the driver blocks behind more.
const mostCopies = 40

// buffersOf is the most buffers that an array of a type has, in those below it, too.
func buffersOf(t arrow.DataType) int {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return buffersOf(t.StorageType())
	case *arrow.DictionaryType:
		return buffersOf(t.IndexType) + buffersOf(t.ValueType)
	case arrow.NestedType:
		n := 3 // validity, offsets and sizes
		for _, f := range t.Fields() {
			n += buffersOf(f.Type)
		}
		return n
	case arrow.FixedWidthDataType:
		return 2
	}
	return 3
}

// produce makes the producer that an operation describes.
func (r *run) produce(s spec, p place, flavour string) (*foreign.Producer, error) {
	if flavour == "held" {
		return r.produceOn(s, p, flavour, r.held)
	}
	return r.produceOn(s, p, flavour, r.work)
}

// produceOn is produce for a stream that fills the memory.
func (r *run) produceOn(s spec, p place, flavour string, on device.Stream) (*foreign.Producer, error) {
	arr := data(r.goMemory(), s.types, s.offset, s.rows, s.seed, s.batch)
	defer arr.Release()
	at := foreign.Place{Dev: r.at(p), Stream: on, Misaligned: flavour == "misaligned", Absent: flavour == "absent", HostWrite: r.hostWrite}
	if p == cpu {
		at.Stream = nil
		return foreign.New(arr.Data(), at)
	}
	if r.machine != nil && (flavour == "event" || flavour == "held") {
		e, err := r.home.NewEvent()
		if err != nil {
			return nil, err
		}
		r.later(func() { must(e.Close()) })
		at.Event = e
	}
	return foreign.New(arr.Data(), at)
}

func doProduce(r *run, o Op) string {
	p, err := r.produce(specOf(o), place(o.arg(5)), o.arg(6))
	if err != nil {
		return errorText(err)
	}
	r.producers[o.Out+".memory"] = p
	r.values[o.Out] = p
	return "ok"
}

func drawImport(g *generator) (Op, bool) {
	p := g.one(nil, producerKind)
	if p == nil {
		return Op{}, false
	}
	how := "device"
	if p.at == cpu && g.IntN(2) == 0 {
		how = "plain"
	}
	return Op{Out: g.name(ofTable(p.table)), On: []string{p.name}, Args: []string{how, []string{"c", "known"}[g.IntN(2)], []string{"", "", "", "releaser", "after event"}[g.IntN(5)]}}, true
}

func expectImport(m *model, o Op) (string, bool) {
	p := m.get(o.On[0], producerKind)
	if p == nil {
		return "", false
	}
	m.add(o.Out, ofTable(p.table), *p, p.holds...)
	if o.arg(2) == "after event" && p.held {
		p.holds[0].used = true
	}
	m.release(p)
	return "ok", true
}

func doImport(r *run, o Op) string {
	p := value[*foreign.Producer](r, o.On[0])
	t := r.tables[o.On[0]]
	opts := r.importOptions(r.at(t.at))
	switch o.arg(2) {
	case "releaser":
		opts = append(opts, cdevice.WithReleaser(twice))
	case "after event":
		opts = append(opts, cdevice.WithReleaseAfterEvent())
	}
	if o.arg(0) == "plain" {
		return importStruct(r, o.Out, t.table, p.Plain(), r.producerSchema(p, t.table, o.arg(1)), opts)
	}
	return importStruct(r, o.Out, t.table, p.Device(), r.producerSchema(p, t.table, o.arg(1)), opts)
}

// twice is a releaser that calls release again, which must do nothing.
func twice(release func()) {
	release()
	release()
}

// producerSchema is a schema of the producer, or nil where Go knows it.
func (r *run) producerSchema(p *foreign.Producer, t table, how string) *cdata.CArrowSchema {
	if how == "known" {
		return nil
	}
	if t.batch {
		return p.Schema(t.schema(), arrow.Field{})
	}
	return p.Schema(nil, fieldOf(arrayName, t.types[0]))
}

// importOptions names the device, which no backend is registered for.
func (r *run) importOptions(d device.Device) []cdevice.ImportOption {
	return []cdevice.ImportOption{cdevice.WithDevice(d)}
}

// importStruct imports a struct as a batch or an array. Without a schema, Go knows it.
func importStruct[S cdevice.ArrayStruct](r *run, out string, t table, a *S, schema *cdata.CArrowSchema, opts []cdevice.ImportOption) string {
	var err error
	var b *cdevice.RecordBatch
	var arr *cdevice.Array
	switch {
	case t.batch && schema != nil:
		b, err = cdevice.ImportRecordBatch(a, schema, opts...)
	case t.batch:
		b, err = cdevice.ImportRecordBatchWithSchema(a, t.schema(), opts...)
	case schema != nil:
		arr, err = cdevice.ImportArray(a, schema, opts...)
	default:
		arr, err = cdevice.ImportArrayWithType(a, caseOf(t.types[0]).Type, opts...)
	}
	if err != nil {
		r.note("%v", err)
		return errorText(err)
	}
	if !t.batch {
		r.values[out] = arr
		want := arrow.Field{Type: caseOf(t.types[0]).Type, Nullable: true} // for a type alone
		if schema != nil {
			want = fieldOf(arrayName, t.types[0])
		}
		return sameField(want, arr.Field())
	}
	r.values[out] = b
	return sameMetadata(tag, b.Schema().Metadata())
}

// owned adds the memory of a copy, or of an allocator of the program.
func (m *model) owned(o *object) {
	memory := m.memoryOf(o)
	memory.deferred, memory.size = o.at != cpu, o.bytes()
}

func drawWrap(g *generator) (Op, bool) {
	s := g.spec()
	return Op{Out: g.name(specOf(Op{Args: s}).kind()), Args: append(s, []string{"home", "cpu"}[g.IntN(2)])}, true
}

func expectWrap(m *model, o Op) (string, bool) {
	s := specOf(o)
	if len(s.types) == 0 && !s.batch {
		return "", false
	}
	w := m.add(o.Out, s.kind(), object{table: s.table(), at: place(o.arg(5))})
	m.owned(w)
	if w.at == cpu { // else it may be a copy
		w.isIn(w.holds[0])
	}
	return "ok", true
}

// doWrap wraps arrays of arrow-go, or copies them to memory of a GPU.
func doWrap(r *run, o Op) string {
	s := specOf(o)
	dev := r.at(place(o.arg(5)))
	mem := r.goMemory()
	if place(o.arg(5)) == home {
		mem = r.mem
	}
	arr := data(mem, s.types, s.offset, s.rows, s.seed, s.batch)
	defer arr.Release()
	if !s.batch {
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		switch {
		case err == nil && dev.CPUAccessible():
			a.Release()
			a, err = cdevice.WrapArray(arr, dev)
		case err == nil:
			whole := a
			a, err = whole.CopyTo(background, dev)
			whole.Release()
		}
		r.values[o.Out] = a
		return errorText(err)
	}
	rec := recordOf(arr.(*array.Struct))
	defer rec.Release()
	var b *cdevice.RecordBatch
	var err error
	if dev.CPUAccessible() {
		b, err = cdevice.WrapRecordBatch(rec, dev)
	} else {
		b, err = cdevice.CopyToDevice(background, rec, dev)
	}
	r.values[o.Out] = b
	return errorText(err)
}

// recordOf is the record batch of a struct without nulls.
func recordOf(s *array.Struct) arrow.RecordBatch {
	columns := make([]arrow.Array, s.NumField())
	for i := range columns {
		columns[i] = s.Field(i)
	}
	return array.NewRecordBatch(arrow.NewSchema(s.DataType().(*arrow.StructType).Fields(), nil), columns, int64(s.Len()))
}

func drawNew(g *generator) (Op, bool) {
	return Op{Out: g.name(batchKind), Args: []string{"batch", g.flat(), num(g.IntN(3)), num(g.rows()), num(g.IntN(1000)), string([]place{home, cpu}[g.IntN(2)])}}, true
}

// flat draws types whose arrays have two buffers.
func (g *generator) flat() string {
	var types []string
	for range 1 + g.IntN(3) {
		types = append(types, []string{"int8", "int64", "float32", "decimal128", "bool", "fixed_size_binary"}[g.IntN(6)])
	}
	return joined(types)
}

func expectNew(m *model, o Op) (string, bool) {
	s := specOf(o)
	at := place(o.arg(5))
	b := m.add(o.Out, batchKind, object{table: s.table(), at: at})
	memory := m.memoryOf(b)
	memory.program, memory.deferred = true, at != cpu
	return "ok", true
}

// doNew has the program fill memory, of which it makes a batch.
func doNew(r *run, o Op) string {
	s := specOf(o)
	p, err := r.produce(s, place(o.arg(5)), "")
	if err != nil {
		return errorText(err)
	}
	released := new(atomic.Int64)
	b, err := r.newBatch(s, place(o.arg(5)), p, released)
	if err != nil {
		p.Free()
		return errorText(err)
	}
	r.counts[o.Out+".memory"] = func() int { return int(released.Load()) }
	r.later(p.Free)
	r.values[o.Out] = b
	return "ok"
}

// newBatch makes a batch of memory of the program, which has filled that as a producer does.
func (r *run) newBatch(s spec, at place, p *foreign.Producer, released *atomic.Int64) (*cdevice.RecordBatch, error) {
	columns := make([]cdevice.ArrayData, len(s.types))
	for i := range columns {
		c := p.Column(i)
		columns[i] = cdevice.ArrayData{Length: int64(s.rows), Offset: c.Offset + int64(s.offset), NullCount: -1, Buffers: c.Buffers}
	}
	return cdevice.NewRecordBatch(r.at(at), s.table().schema(), int64(s.rows), columns, cdevice.Lifetime{Release: func() {
		p.End()
		released.Add(1)
	}})
}
