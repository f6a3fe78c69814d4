package metamorphic

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Operations that make batches and arrays of others, without copying.

func init() {
	register(
		&verb{name: "slice", weight: 10, draw: drawSlice, expect: expectSlice, do: doSlice},
		&verb{name: "select", weight: 5, draw: drawSelect, expect: expectSelect, do: doSelect},
		&verb{name: "column", weight: 8, draw: drawColumn, expect: expectColumn, do: doColumn},
		&verb{name: "combine", weight: 6, draw: drawCombine, expect: expectCombine, do: doCombine},
		&verb{name: "with column", weight: 4, draw: drawWithColumn, expect: expectWithColumn, do: doWithColumn},
		&verb{name: "with metadata", weight: 3, draw: drawOn(batchKind), expect: expectWithMetadata, do: doWithMetadata},
		&verb{name: "as cpu", weight: 3, draw: drawAsCPU, expect: expectAsCPU, do: doAsCPU},
		&verb{name: "copy", weight: 8, draw: drawCopy, expect: expectCopy, do: doCopy},
		&verb{name: "with event", weight: 3, draw: drawWithEvent, expect: expectWithEvent, do: doWithEvent},
	)
}

// derived adds an object with another table that shares the memory of the first, or has one of several memories.
func (m *model) derived(out string, t table, from ...*object) *object {
	var holds []*object
	made := *from[0]
	made.table, made.held, made.known = t, false, nil
	for _, f := range from {
		made.held, made.repeats = made.held || f.held, made.repeats || f.repeats
		for _, h := range f.holds {
			if slices.Contains(holds, h) {
				made.repeats = true
				continue
			}
			holds = append(holds, h)
		}
	}
	if len(holds) < 2 {
		return m.add(out, ofTable(t), made, holds...)
	}
	o := m.add(out, ofTable(t), made)
	joint := m.memoryOf(o)
	joint.size = t.bytes()
	for _, h := range holds {
		joint.deferred = joint.deferred || h.deferred && !h.program
		m.hold(joint, h)
	}
	return o
}

func drawSlice(g *generator) (Op, bool) {
	b := g.one(nil, batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	i, j := g.bounds(b.rows)
	return Op{Out: g.name(b.kind), On: []string{b.name}, Args: []string{num(i), num(j)}}, true
}

func expectSlice(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || o.num(1) > b.rows {
		return "", false
	}
	m.derived(o.Out, b.slice(o.num(0), o.num(1)), b)
	return "ok", true
}

func doSlice(r *run, o Op) string {
	i, j := int64(o.num(0)), int64(o.num(1))
	if b, ok := r.values[o.On[0]].(*cdevice.RecordBatch); ok {
		return made(r, o.Out)(b.Slice(i, j))
	}
	return made(r, o.Out)(value[*cdevice.Array](r, o.On[0]).Slice(i, j))
}

// made keeps the object that a call has made.
func made(r *run, out string) func(v any, err error) string {
	return func(v any, err error) string {
		if err != nil {
			r.note("%v", err)
			return errorText(err)
		}
		r.values[out] = v
		return "ok"
	}
}

func drawSelect(g *generator) (Op, bool) {
	b := g.one(nil, batchKind)
	if b == nil || len(b.types) == 0 {
		return Op{}, false
	}
	o := Op{Out: g.name(batchKind), On: []string{b.name}}
	for _, i := range g.Perm(len(b.types))[:g.IntN(len(b.types)+1)] {
		o.Args = append(o.Args, num(i))
	}
	return o, true
}

func (o Op) nums() (all []int) {
	for i := range o.Args {
		all = append(all, o.num(i))
	}
	return all
}

func expectSelect(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil || slices.ContainsFunc(o.nums(), func(i int) bool { return i >= len(b.types) }) {
		return "", false
	}
	m.derived(o.Out, b.pick(o.nums()...), b)
	return "ok", true
}

func doSelect(r *run, o Op) string {
	return made(r, o.Out)(value[*cdevice.RecordBatch](r, o.On[0]).Select(o.nums()...))
}

func drawColumn(g *generator) (Op, bool) {
	b := g.one(nil, batchKind)
	if b == nil || len(b.types) == 0 {
		return Op{}, false
	}
	return Op{Out: g.name(arrayKind), On: []string{b.name}, Args: []string{num(g.IntN(len(b.types)))}}, true
}

func expectColumn(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil || o.num(0) >= len(b.types) {
		return "", false
	}
	m.derived(o.Out, b.column(o.num(0)), b)
	return "ok", true
}

func doColumn(r *run, o Op) string {
	t, a := r.tables[o.Out], value[*cdevice.RecordBatch](r, o.On[0]).Column(o.num(0))
	r.values[o.Out] = a
	return sameField(fieldOf(t.names[0], t.types[0]), a.Field())
}

func drawCombine(g *generator) (Op, bool) {
	first := g.one(nil, arrayKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(batchKind), On: []string{first.name}}
	for range g.IntN(3) {
		if a := g.one(given(fits(first)), arrayKind); a != nil {
			o.On = append(o.On, a.name)
		}
	}
	return o, true
}

// fits reports whether an array can be in a batch with another one.
func fits(first *object) func(*object) bool {
	return func(a *object) bool { return a.rows == first.rows && a.at == first.at }
}

// joint are the arrays that become a batch.
func (m *model) joint(names []string, kinds ...kind) (arrays []*object) {
	for _, name := range names {
		a := m.get(name, kinds...)
		if a == nil || !fits(m.objects[names[0]])(a) {
			return nil
		}
		arrays = append(arrays, a)
	}
	return arrays
}

func jointTable(arrays []*object) table {
	t := table{batch: true, rows: arrays[0].rows}
	for i, a := range arrays {
		t.names, t.types, t.values = append(t.names, columnName(i)), append(t.types, a.types[0]), append(t.values, a.values[0])
		t.origins = append(t.origins, a.origin(0))
	}
	return t
}

func expectCombine(m *model, o Op) (string, bool) {
	arrays := m.joint(o.On, arrayKind)
	if arrays == nil {
		return "", false
	}
	m.derived(o.Out, jointTable(arrays), arrays...)
	return "ok", true
}

func doCombine(r *run, o Op) string {
	arrays := make([]*cdevice.Array, len(o.On))
	for i, name := range o.On {
		arrays[i] = value[*cdevice.Array](r, name)
	}
	return made(r, o.Out)(cdevice.RecordBatchFromArrays(r.tables[o.Out].schema(), arrays...))
}

func drawWithColumn(g *generator) (Op, bool) {
	b := g.one(nil, batchKind)
	if b == nil {
		return Op{}, false
	}
	a := g.one(given(fits(b)), arrayKind)
	if a == nil {
		return Op{}, false
	}
	name := "new"
	if len(b.names) > 0 && g.IntN(2) == 0 {
		name = b.names[g.IntN(len(b.names))]
	}
	return Op{Out: g.name(batchKind), On: []string{b.name, a.name}, Args: []string{name}}, true
}

func expectWithColumn(m *model, o Op) (string, bool) {
	b, a := m.get(o.On[0], batchKind), m.get(o.On[1], arrayKind)
	if b == nil || a == nil || !fits(b)(a) {
		return "", false
	}
	t := b.pick()
	same := 0
	for i, name := range b.names {
		column := b.pick(i)
		if name == o.arg(0) {
			column.types, column.values, column.origins = a.types, a.values, a.origins
			same++
		}
		t = t.append(column)
	}
	if same > 1 {
		return "", false
	}
	if same == 0 {
		column := a.pick(0)
		column.names = []string{o.arg(0)}
		t = t.append(column)
	}
	m.derived(o.Out, t, b, a)
	return "ok", true
}

func (t table) append(u table) table {
	t.origins = append(t.allOrigins(), u.allOrigins()...)
	t.names = append(slices.Clip(t.names), u.names...)
	t.types = append(slices.Clip(t.types), u.types...)
	t.values = append(slices.Clip(t.values), u.values...)
	return t
}

func doWithColumn(r *run, o Op) string {
	b, a := value[*cdevice.RecordBatch](r, o.On[0]), value[*cdevice.Array](r, o.On[1])
	return made(r, o.Out)(b.WithColumn(fieldOf(o.arg(0), r.tables[o.On[1]].types[0]), a))
}

// drawOn draws an operation that makes an object of one of the same kind.
func drawOn(kinds ...kind) func(g *generator) (Op, bool) {
	return func(g *generator) (Op, bool) {
		b := g.one(nil, kinds...)
		if b == nil {
			return Op{}, false
		}
		return Op{Out: g.name(b.kind), On: []string{b.name}}, true
	}
}

func expectWithMetadata(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil {
		return "", false
	}
	m.derived(o.Out, b.table, b)
	return "ok", true
}

func doWithMetadata(r *run, o Op) string {
	b := value[*cdevice.RecordBatch](r, o.On[0]).WithMetadata(tag)
	r.values[o.Out] = b
	return sameMetadata(tag, b.Metadata())
}

func drawAsCPU(g *generator) (Op, bool) {
	b := g.one(given(isReady), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	return Op{Out: g.name(b.kind), On: []string{b.name}}, true
}

func expectAsCPU(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || !b.ready() {
		return "", false
	}
	m.derived(o.Out, b.table, b).at = cpu
	return "ok", true
}

// doAsCPU copies memory that the CPU cannot access, and keeps the original beside the copy, as the model has it.
func doAsCPU(r *run, o Op) string {
	if b, ok := r.values[o.On[0]].(*cdevice.RecordBatch); ok {
		copied, err := b.AsCPU(background)
		if !r.accessible(b.DeviceID()) {
			if text := errorText(err); text != failed("ErrNotSupported") {
				return text
			}
			copied, err = b.CopyTo(background, r.at(cpu))
			r.keep(o.Out, b)
		}
		return made(r, o.Out)(copied, err)
	}
	a := value[*cdevice.Array](r, o.On[0])
	copied, err := a.AsCPU(background)
	if !r.accessible(a.DeviceID()) {
		if text := errorText(err); text != failed("ErrNotSupported") {
			return text
		}
		copied, err = a.CopyTo(background, r.at(cpu))
		r.keep(o.Out, a)
	}
	return made(r, o.Out)(copied, err)
}

func drawCopy(g *generator) (Op, bool) {
	b := g.one(given(isReady), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	return Op{Out: g.name(b.kind), On: []string{b.name}, Args: []string{string([]place{home, other, cpu}[g.IntN(3)])}}, true
}

func expectCopy(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || !b.ready() {
		return "", false
	}
	m.owned(m.add(o.Out, b.kind, object{table: b.table, at: place(o.arg(0))}))
	return "ok", true
}

func doCopy(r *run, o Op) string {
	to := r.at(place(o.arg(0)))
	if b, ok := r.values[o.On[0]].(*cdevice.RecordBatch); ok {
		c, err := b.CopyTo(background, to)
		if got := made(r, o.Out)(c, err); got != "ok" {
			return got
		}
		return sameMetadata(b.Metadata(), c.Metadata())
	}
	return made(r, o.Out)(value[*cdevice.Array](r, o.On[0]).CopyTo(background, to))
}

func drawWithEvent(g *generator) (Op, bool) {
	b := g.one(given(func(b *object) bool { return b.at == home }), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	on := "work"
	if g.m.holding && g.IntN(2) == 0 {
		on = "held"
	}
	return Op{Out: g.name(b.kind), On: []string{b.name}, Args: []string{on}}, true
}

func expectWithEvent(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || b.at != home || o.arg(0) == "held" && !m.holding || o.arg(0) == "work" && b.held {
		return "", false
	}
	c := m.derived(o.Out, b.table, b)
	c.held = b.held || o.arg(0) == "held"
	return "ok", true
}

func doWithEvent(r *run, o Op) string {
	s := r.stream(o.arg(0))
	if b, ok := r.values[o.On[0]].(*cdevice.RecordBatch); ok {
		return made(r, o.Out)(b.WithEvent(s))
	}
	return made(r, o.Out)(value[*cdevice.Array](r, o.On[0]).WithEvent(s))
}

// sameField compares the field of an array.
func sameField(want, got arrow.Field) string {
	if !got.Equal(want) {
		return fmt.Sprintf("the field %v, not %v", got, want)
	}
	return "ok"
}

// sameMetadata compares the metadata of a batch or a schema, which what is made of it keeps.
func sameMetadata(want, got arrow.Metadata) string {
	if !got.Equal(want) {
		return fmt.Sprintf("the metadata %v, not %v", got, want)
	}
	return "ok"
}
