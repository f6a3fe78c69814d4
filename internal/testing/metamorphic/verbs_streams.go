package metamorphic

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations of C streams: those of other libraries, and those that the library exports.

func init() {
	register(
		&verb{name: "stream", weight: 9, draw: drawStream, expect: expectStream, do: doStream},
		&verb{name: "import stream", weight: 12, draw: drawImportStream, expect: expectImportStream, do: doImportStream},
		&verb{name: "export stream", weight: 8, draw: drawExportStream, expect: expectExportStream, do: doExportStream},
		&verb{name: "get schema", weight: 3, draw: drawGetSchema, expect: expectGetSchema, do: doGetSchema},
		&verb{name: "get next", weight: 14, draw: drawGetNext, expect: expectGetNext, do: doGetNext},
	)
	releasable[foreignKind] = releaseStream
	releasable[streamKind] = releaseStream
}

func drawStream(g *generator) (Op, bool) {
	first := g.one(nil, producerKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(foreignKind), On: []string{first.name}, Args: []string{"device", "0", "0", "0", "0"}}
	for _, p := range g.m.alive(producerKind) {
		if p != first && sameAs(first)(p) {
			o.On = append(o.On, p.name)
		}
	}
	if first.at == cpu && g.IntN(2) == 0 {
		o.Args[0] = "plain"
	}
	switch g.IntN(8) {
	case 0, 1:
		o.Args[1] = num(1 + g.IntN(len(o.On)+1))
		o.Args[2] = num(int([]syscall.Errno{syscall.EIO, syscall.EINVAL, syscall.ENOSYS, syscall.ENOMEM, syscall.ECANCELED, syscall.ETIMEDOUT}[g.IntN(6)]))
	case 2:
		o.Args[3] = num(int(syscall.EACCES))
	case 3, 4:
		o.Args[4] = num(1 + g.IntN(len(o.On)+1))
	}
	return o, true
}

// all returns the objects of the names, if each fits the first.
func (m *model) all(names []string, fits func(first *object) func(*object) bool, kinds ...kind) (found []*object) {
	for _, name := range names {
		o := m.get(name, kinds...)
		if o == nil || len(found) > 0 && !fits(found[0])(o) || slices.Contains(found, o) {
			return nil
		}
		found = append(found, o)
	}
	return found
}

func troubleOf(o Op) foreign.Trouble {
	t := foreign.Trouble{FailAt: o.num(1), Code: o.num(2), Schema: o.num(3), BlockAt: o.num(4)}
	if t.FailAt%2 == 1 || t.Schema != 0 {
		t.Text = troubleText(t.FailAt)
	}
	return t
}

func expectStream(m *model, o Op) (string, bool) {
	producers := m.all(o.On, sameAs, producerKind)
	if producers == nil || o.num(1) > len(producers)+1 || o.num(4) > len(producers)+1 {
		return "", false
	}
	f, t := &flow{}, troubleOf(o)
	if t.Schema != 0 {
		f.schema = end{"producer", t.Schema, t.Text}
	}
	source := m.addSource(o.Out, f, false)
	for _, p := range producers {
		f.items = append(f.items, m.give(source, p.table, p.holds))
	}
	if t.FailAt > 0 {
		m.cut(f, t.FailAt-1, end{"producer", t.Code, t.Text})
	}
	first := *producers[0]
	first.table = shapeOf(first.table)
	first.plain = o.arg(0) == "plain"
	m.addReader(o.Out, foreignKind, first, source)
	if t.BlockAt > 0 {
		m.addGate(o.Out, f, t.BlockAt-1, producers)
		f.inC = true
	}
	for _, p := range producers {
		m.release(p)
	}
	return "ok", true
}

// addGate adds a gate that an item of a source waits for.
func (m *model) addGate(out string, f *flow, at int, items []*object) {
	f.blockAt = at
	f.gate = m.add(out+".gate", gateKind, object{})
	f.gate.loose = true
	for _, it := range items {
		for _, h := range it.holds {
			m.hold(f.gate, h)
		}
	}
}

func doStream(r *run, o Op) string {
	var producers []*foreign.Producer
	for _, name := range o.On {
		producers = append(producers, value[*foreign.Producer](r, name))
	}
	t := r.tables[o.Out]
	var schema *arrow.Schema
	var field arrow.Field
	if t.batch {
		schema = t.schema()
	} else {
		field = fieldOf("", t.types[0])
	}
	s, err := foreign.NewStream(schema, field, r.at(t.at).ID(), producers, troubleOf(o))
	if err != nil {
		return errorText(err)
	}
	r.streams = append(r.streams, s)
	r.imported[o.Out] = s
	if t.plain {
		r.values[o.Out] = s.Plain()
	} else {
		r.values[o.Out] = s.Device()
	}
	if o.num(4) > 0 {
		r.values[o.Out+".gate"] = &gate{let: s.Let, waiting: s.Waiting}
	}
	return "ok"
}

func drawImportStream(g *generator) (Op, bool) {
	y := g.one(given(importable), foreignKind, foreignKind, streamKind)
	if y == nil {
		return Op{}, false
	}
	return Op{Out: g.name(readerOf(y.table)), On: []string{y.name}, Args: []string{[]string{"", "", "releaser", "late releaser"}[g.IntN(4)]}}, true
}

func importable(y *object) bool {
	f := y.flow()
	return !f.unsure && !f.busy && !f.taken
}

func expectImportStream(m *model, o Op) (string, bool) {
	y := m.get(o.On[0], foreignKind, streamKind)
	if y == nil || !importable(y) {
		return "", false
	}
	f, source := y.flow(), y.source()
	if o.arg(0) == "late releaser" {
		m.slowAll(source)
	}
	if end, fails := f.schemaFails(); fails {
		m.release(y)
		return end.imported().seen(), true
	}
	s := *y
	if y.kind == streamKind {
		source = m.derive(o.Out, y, func(it item) item { return it })
		derived := source.known.(*flow)
		derived.end = f.end.imported()
		f.passed = true
		m.hold(source, y)
	}
	if y.plain {
		s.plain, s.at = false, cpu
	}
	m.addReader(o.Out, readerOf(y.table), s, source)
	m.release(y)
	return "ok", true
}

// schemaFails returns the error of get_schema.
func (f *flow) schemaFails() (e end, fails bool) {
	return f.schema, f.schema.what != ""
}

func doImportStream(r *run, o Op) string {
	y := r.tables[o.On[0]]
	opts := r.importOptions(r.at(y.at))
	switch o.arg(0) {
	case "releaser":
		opts = append(opts, cdevice.WithReleaser(twice))
	case "late releaser":
		opts = append(opts, cdevice.WithReleaser(func(release func()) { time.AfterFunc(time.Millisecond, release) }))
	}
	var err error
	switch s := r.values[o.On[0]].(type) {
	case *cdata.CArrowArrayStream:
		err = importStream(r, o.Out, y.table, s, opts)
	case *cdevice.CArrowDeviceArrayStream:
		err = importStream(r, o.Out, y.table, s, opts)
	}
	if err != nil {
		return describe(err)
	}
	r.imported[o.Out] = r.imported[o.On[0]]
	r.share(o.Out, o.On[0])
	r.readAhead(o.Out)
	return "ok"
}

func importStream[S cdevice.StreamStruct](r *run, out string, t table, s *S, opts []cdevice.ImportOption) error {
	if !t.batch {
		a, err := cdevice.ImportArrayReader(s, opts...)
		if err == nil {
			r.values[out] = a
		}
		return err
	}
	b, err := cdevice.ImportRecordReader(s, opts...)
	if err == nil {
		r.values[out] = b
	}
	return err
}

// marker is the text that errors of programs have.
var marker = regexp.MustCompile(`trouble \d+`)

// describe describes the end of a stream, as end.seen does.
func describe(err error) string {
	if seen, ok := knownEnd(err); ok {
		return seen
	}
	return err.Error()
}

// knownEnd is describe for an error that tells the end of a stream. It reports false for another one.
func knownEnd(err error) (seen string, ok bool) {
	var pe *cdevice.ProducerError
	switch {
	case err == nil:
		return "the end", true
	case is(err, io.EOF): // which functions of arrow-go take for the end
		return "io.EOF", true
	case asError(err, &pe):
		return fmt.Sprintf("the producer's error %d %s", pe.Code, marker.FindString(pe.Message)), true
	case strings.Contains(err.Error(), "no more tasks than were requested"):
		return "too many", true
	case misfit(err) != "":
		return "the field " + misfit(err), true
	case is(err, cdevice.ErrReleased):
		return "closed", true
	case is(err, context.Canceled):
		return "canceled", true
	case strings.Contains(err.Error(), "returned nil without an error"):
		return "nil", true
	case strings.Contains(err.Error(), "returned an item with io.EOF"):
		return "beside", true
	case hasStack(err):
		return "panic " + marker.FindString(err.Error()), true
	case marker.MatchString(err.Error()):
		return marker.FindString(err.Error()), true
	case is(err, io.ErrUnexpectedEOF):
		return "cut off", true
	}
	return "", false
}

// misfit is the field that an error about an item names, or "".
func misfit(err error) string {
	var field *cdevice.FieldError
	if !asError(err, &field) || is(err, cdevice.ErrReleased) && field.Field != "RecordBatch" && field.Field != "Array" {
		return ""
	}
	return field.Field
}

func drawExportStream(g *generator) (Op, bool) {
	s := g.one(given(func(s *object) bool { return !s.flow().unsure && !s.flow().taken && !s.flow().busy }), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	how := "device"
	if s.at == cpu && g.IntN(2) == 0 {
		how = "plain"
	}
	return Op{Out: g.name(streamKind), On: []string{s.name}, Args: []string{how}}, true
}

func expectExportStream(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || o.arg(0) == "plain" && s.at != cpu || s.flow().unsure || s.flow().taken || s.flow().busy {
		return "", false
	}
	f := s.flow()
	f.exports++
	f.given++
	y := *s
	y.plain = o.arg(0) == "plain"
	m.addReader(o.Out, streamKind, y, s.source())
	return "ok", true
}

func doExportStream(r *run, o Op) string {
	var err error
	if o.arg(0) == "plain" {
		out := foreign.NewPlainStream()
		r.later(func() { foreign.Forget(out) })
		r.values[o.Out] = out
		err = exportStream(r.values[o.On[0]], out)
	} else {
		out := foreign.NewDeviceStream()
		r.later(func() { foreign.Forget(out) })
		r.values[o.Out] = out
		err = exportStream(r.values[o.On[0]], out)
	}
	r.share(o.Out, o.On[0])
	return errorText(err)
}

func exportStream[S cdevice.StreamStruct](v any, out *S) error {
	if s, ok := v.(*cdevice.RecordReader); ok {
		return cdevice.ExportRecordReader(s, out)
	}
	return cdevice.ExportArrayReader(v.(*cdevice.ArrayReader), out)
}

func drawGetSchema(g *generator) (Op, bool) {
	y := g.one(given(func(y *object) bool { return !y.flow().closed }), streamKind)
	if y == nil {
		return Op{}, false
	}
	return Op{On: []string{y.name}, Args: []string{[]string{"here", "thread"}[g.IntN(2)]}}, true
}

func expectGetSchema(m *model, o Op) (string, bool) {
	y := m.get(o.On[0], streamKind)
	if y == nil {
		return "", false
	}
	if e, fails := y.flow().schemaFails(); fails {
		return e.inC(), true
	}
	return "ok", true
}

func doGetSchema(r *run, o Op) string {
	schema := foreign.NewSchema()
	defer foreign.Forget(schema)
	var a foreign.Answer
	if s, ok := r.values[o.On[0]].(*cdata.CArrowArrayStream); ok {
		a = foreign.GetSchemaPlain(s, schema, o.arg(0) == "thread")
	} else {
		a = foreign.GetSchema(value[*cdevice.CArrowDeviceArrayStream](r, o.On[0]), schema, o.arg(0) == "thread")
	}
	if a.Code != 0 {
		return inC(a)
	}
	return r.checkSchema(r.tables[o.On[0]].table, nil, schema)
}

// inC is the inC of an end for an answer that is an error.
func inC(a foreign.Answer) string {
	if a.Text == "" {
		return "an error without a text"
	}
	return fmt.Sprintf("code %d %s", a.Code, marker.FindString(a.Text))
}

func drawGetNext(g *generator) (Op, bool) {
	y := g.one(given(readable), streamKind)
	if y == nil {
		return Op{}, false
	}
	return Op{Out: g.name(structKind), On: []string{y.name}, Args: []string{[]string{"here", "thread"}[g.IntN(2)]}}, true
}

func expectGetNext(m *model, o Op) (string, bool) {
	y := m.get(o.On[0], streamKind)
	if y == nil || !readable(y) {
		return "", false
	}
	f := y.flow()
	it, ok := m.take(f)
	if !ok {
		m.reached(y.source())
		return f.end.inC(), true
	}
	x := *y
	x.table, x.known = it.table, nil
	m.add(o.Out, structKind, x, it.owns()...)
	it.exported(y)
	m.pass(it)
	return "ok", true
}

// exported records the export of an item.
func (it item) exported(to *object) {
	for _, h := range it.owns() {
		h.exported = h.exported || !to.plain && to.at != cpu
	}
}

// owns are the memories that the item's consumer holds.
func (it item) owns() []*object {
	if it.fresh {
		return nil
	}
	return it.from
}

func doGetNext(r *run, o Op) string {
	var a foreign.Answer
	var released bool
	if s, ok := r.values[o.On[0]].(*cdata.CArrowArrayStream); ok {
		x := foreign.NewArray()
		r.later(func() { foreign.Forget(x) })
		a = foreign.GetNextPlain(s, x, o.arg(0) == "thread")
		released = foreign.Released(x)
		r.values[o.Out] = x
	} else {
		x := foreign.NewDeviceArray()
		r.later(func() { foreign.Forget(x) })
		a = foreign.GetNext(value[*cdevice.CArrowDeviceArrayStream](r, o.On[0]), x, o.arg(0) == "thread")
		released = foreign.Released(foreign.ArrayOf(x))
		r.values[o.Out] = x
	}
	switch {
	case !released && a.Code == 0:
		r.popTo(o.On[0], o.Out)
		return "ok"
	case !released:
		return "an error, and a struct that is not released"
	}
	delete(r.values, o.Out)
	if a.Code == 0 {
		return "the end"
	}
	return inC(a)
}

func releaseStream(r *run, o Op) string {
	if s, ok := r.values[o.On[0]].(*cdata.CArrowArrayStream); ok {
		foreign.ReleasePlainStream(s, o.num(0)%2 == 1)
	} else {
		foreign.ReleaseStream(value[*cdevice.CArrowDeviceArrayStream](r, o.On[0]), o.num(0)%2 == 1)
	}
	return "ok"
}
