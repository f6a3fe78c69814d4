package metamorphic

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/arrio"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations of C streams that a package cdata reads, and of those that it exports and reads again.

// hostReaderKind is a reader of a package cdata.
const hostReaderKind kind = "w"

func init() {
	register(
		&verb{name: "cdata stream", weight: 3, draw: drawCDataStream, expect: expectCDataStream, do: doCDataStream},
		&verb{name: "cdata loop", weight: 3, draw: drawCDataLoop, expect: expectCDataLoop, do: doCDataLoop},
		&verb{name: "cdata next", weight: 10, draw: drawCDataNext, expect: expectCDataNext, do: doCDataNext},
	)
	releasable[hostReaderKind] = releaseFlow
}

// hostFlow is the model's state of a reader.
type hostFlow struct {
	rest    []*flowItem
	current *flowItem
	fails   bool // at its end
}

type flowItem struct {
	table
	holds []*object
}

// reading is a reader in a world.
type reading struct {
	arrio.Reader
	current arrow.RecordBatch
	kept    [][]releaser // beside the items that were not read, and the current one
	over    string       // its end
	closed  bool
}

func drawCDataStream(g *generator) (Op, bool) {
	s := g.spec()
	s[0] = "batch"
	trouble := ""
	if g.IntN(4) == 0 {
		trouble = []string{"5", "22"}[g.IntN(2)] // an errno
	}
	return Op{Out: g.name(hostReaderKind), Args: append(s, num(g.IntN(4)), trouble)}, true
}

// part is the spec of item i of a stream.
func (s spec) part(i int) spec {
	s.seed += uint64(i)
	s.rows += i % 2
	return s
}

func expectCDataStream(m *model, o Op) (string, bool) {
	s := specOf(o)
	if !s.batch || s.table().hasExtensions() {
		return "", false
	}
	f := m.add(o.Out, hostReaderKind, object{table: s.table(), at: cpu})
	known := &hostFlow{fails: o.arg(6) != ""}
	for i := range o.num(5) {
		memory := m.memoryNamed(fmt.Sprintf("%s.%d", o.Out, i), f)
		known.rest = append(known.rest, &flowItem{s.part(i).table(), []*object{memory}})
	}
	f.known = known
	return "ok", true
}

// memoryNamed adds a memory that the object holds.
func (m *model) memoryNamed(name string, o *object) *object {
	memory := m.add(name+".memory", memoryKind, object{at: o.at})
	memory.refs = 0
	m.hold(o, memory)
	return memory
}

// drop has an object no longer hold others.
func (m *model) drop(o *object, held []*object) {
	for _, h := range held {
		i := slices.Index(o.holds, h)
		o.holds = slices.Delete(slices.Clone(o.holds), i, i+1)
		h.users--
		m.settle(h)
	}
}

func doCDataStream(r *run, o Op) string {
	s := specOf(o)
	var producers []*foreign.Producer
	for i := range o.num(5) {
		p, err := r.produce(s.part(i), cpu, "")
		if err != nil {
			return err.Error()
		}
		r.producers[fmt.Sprintf("%s.%d.memory", o.Out, i)] = p
		producers = append(producers, p)
	}
	var trouble foreign.Trouble
	if o.arg(6) != "" {
		trouble = foreign.Trouble{FailAt: len(producers) + 1, Code: o.num(6), Text: "it has failed"}
	}
	stream, err := foreign.NewStream(s.table().schema(), arrow.Field{}, r.at(cpu).ID(), producers, trouble)
	if err != nil {
		return err.Error()
	}
	r.streams = append(r.streams, stream)
	l := r.library(s.table())
	reader, err := l.importReader(stream.Plain(), nil)
	if err != nil {
		return err.Error()
	}
	return r.checkReading(o.Out, s.table(), &reading{Reader: reader, kept: make([][]releaser, len(producers))})
}

func (r *run) checkReading(out string, t table, f *reading) string {
	r.values[out] = f
	if got, want := f.Reader.(interface{ Schema() *arrow.Schema }).Schema(), t.schema(); !got.Equal(want) && !r.upstream {
		return "the schema " + got.String() + ", not " + want.String()
	}
	return "ok"
}

func drawCDataLoop(g *generator) (Op, bool) {
	first := g.one(given(isBatch, hasNoExtensions), recordKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(hostReaderKind), On: []string{first.name}}
	for range g.IntN(3) {
		if b := g.one(given(func(b *object) bool { return b.shape() == first.shape() }), recordKind); b != nil {
			o.On = append(o.On, b.name)
		}
	}
	return o, true
}

func isBatch(o *object) bool { return o.batch }

func expectCDataLoop(m *model, o Op) (string, bool) {
	var all []*object
	for _, name := range o.On {
		b := m.get(name, recordKind)
		if b == nil || !b.batch || b.hasExtensions() || b.shape() != m.objects[o.On[0]].shape() {
			return "", false
		}
		all = append(all, b)
	}
	f := m.add(o.Out, hostReaderKind, object{table: all[0].table, at: cpu})
	known := &hostFlow{}
	for _, b := range all {
		item := &flowItem{b.table, slices.Clone(b.holds)}
		for _, h := range item.holds {
			m.hold(f, h)
		}
		known.rest = append(known.rest, item)
	}
	f.known = known
	return "ok", true
}

// turns is a reader of record batches that holds each until the next is asked for.
type turns struct {
	schema  *arrow.Schema
	rest    []arrow.RecordBatch
	current arrow.RecordBatch
	refs    int
}

func (t *turns) Retain() { t.refs++ }

func (t *turns) Release() {
	if t.refs--; t.refs > 0 {
		return
	}
	for t.Next() {
	}
}

func (t *turns) Schema() *arrow.Schema { return t.schema }

func (t *turns) Next() bool {
	if t.current != nil {
		t.current.Release()
		t.current = nil
	}
	if len(t.rest) == 0 {
		return false
	}
	t.current, t.rest = t.rest[0], t.rest[1:]
	return true
}

func (t *turns) RecordBatch() arrow.RecordBatch { return t.current }
func (t *turns) Record() arrow.RecordBatch      { return t.current }
func (t *turns) Err() error                     { return nil }

func doCDataLoop(r *run, o Op) string {
	f := &reading{}
	first := value[arrow.RecordBatch](r, o.On[0])
	t := &turns{schema: first.Schema(), refs: 1}
	upstream := true
	for _, name := range o.On {
		rec := value[arrow.RecordBatch](r, name)
		rec.Retain()
		t.rest = append(t.rest, rec)
		var kept []releaser
		for _, v := range r.kept[name] {
			v.Retain()
			kept = append(kept, v)
		}
		f.kept = append(f.kept, kept)
		upstream = upstream && r.tables[name].isForUpstream()
	}
	l := ownLibrary
	if upstream {
		l = r.library(r.tables[o.On[0]].table)
	}
	c := foreign.NewPlainStream()
	r.later(func() { foreign.Forget(c) })
	if l == upstreamLibrary {
		*c = cdata.CArrowArrayStream{}
	}
	l.exportReader(t, c)
	t.Release()
	var err error
	if f.Reader, err = l.importReader(c, nil); err != nil {
		return err.Error()
	}
	return r.checkReading(o.Out, r.tables[o.On[0]].table, f)
}

func drawCDataNext(g *generator) (Op, bool) {
	f := g.one(nil, hostReaderKind)
	if f == nil {
		return Op{}, false
	}
	return Op{Out: g.name(recordKind), On: []string{f.name}}, true
}

func expectCDataNext(m *model, o Op) (string, bool) {
	f := m.get(o.On[0], hostReaderKind)
	if f == nil {
		return "", false
	}
	known := f.known.(*hostFlow)
	if known.current != nil {
		m.drop(f, known.current.holds)
		known.current = nil
	}
	switch {
	case len(known.rest) > 0:
		known.current, known.rest = known.rest[0], known.rest[1:]
		m.add(o.Out, recordKind, object{table: known.current.table, at: cpu}, known.current.holds...)
		return "ok", true
	case known.fails:
		return "an error of the producer", true
	}
	return "the end", true
}

// doCDataNext keeps the record batch that is read. arrow-go's reader ends its stream at its release only.
func doCDataNext(r *run, o Op) string {
	f := value[*reading](r, o.On[0])
	if f.over != "" && (f.closed || r.upstream) {
		return f.over
	}
	rec, err := f.Read()
	if f.current != nil {
		f.dropKept()
	}
	f.current = rec
	switch {
	case err == nil:
		rec.Retain()
		for _, v := range f.kept[0] {
			r.keep(o.Out, v)
		}
		return made(r, o.Out)(rec, nil)
	case errors.Is(err, io.EOF):
		return r.ends(f, "the end")
	}
	return r.ends(f, "an error of the producer")
}

func (r *run) ends(f *reading, how string) string {
	if f.over != "" && f.over != how {
		return how + ", after " + f.over
	}
	f.current, f.over = nil, how
	if r.upstream {
		f.close()
	}
	return how
}

func (f *reading) dropKept() {
	for _, v := range f.kept[0] {
		v.Release()
	}
	f.kept = f.kept[1:]
}

func (f *reading) close() {
	if f.closed {
		return
	}
	f.closed = true
	f.Reader.(interface{ Release() }).Release()
	for len(f.kept) > 0 {
		f.dropKept()
	}
}

func releaseFlow(r *run, o Op) string {
	value[*reading](r, o.On[0]).close()
	return "ok"
}
