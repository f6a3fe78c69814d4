package metamorphic

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Operations that make readers of a program's own sources.

func init() {
	register(
		&verb{name: "reader", weight: 9, draw: drawReader, expect: expectReader, do: doReader},
		&verb{name: "wrap reader", weight: 5, draw: drawWrapReader, expect: expectWrapReader, do: doWrapReader},
		&verb{name: "concat", weight: 3, draw: drawConcat, expect: expectConcat, do: doConcat},
		&verb{name: "failed reader", weight: 1, draw: drawFailedReader, expect: expectFailedReader, do: doFailedReader},
	)
	releasable[gateKind] = releaseGate
}

// readAhead has a reader read ahead as readers of the world do.
func (r *run) readAhead(name string) {
	switch s := r.values[name].(type) {
	case *cdevice.RecordReader:
		s.Prefetch(r.prefetch)
	case *cdevice.ArrayReader:
		s.Prefetch(r.prefetch)
	}
}

func drawReader(g *generator) (Op, bool) {
	first := g.one(nil, batchKind, arrayKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(readerOf(first.table)), On: []string{first.name}, Args: []string{"iterator", "", "0", num(g.IntN(100)), "0"}}
	for range g.IntN(4) {
		if b := g.one(given(sameAs(first)), first.kind); b != nil {
			o.On = append(o.On, b.name)
		}
	}
	if first.kind == batchKind && g.IntN(2) == 0 {
		o.Args[0] = "func"
	}
	if g.IntN(4) == 0 {
		o.Args[1], o.Args[2] = []string{"error", "cut", "panic"}[g.IntN(3)], num(1+g.IntN(len(o.On)+1))
	}
	if o.Args[0] == "func" && g.IntN(8) == 0 {
		o.Args[1], o.Args[2] = "beside", num(1+g.IntN(len(o.On)))
	}
	if o.Args[0] == "func" && g.IntN(3) == 0 {
		o.Args[4] = num(1 + g.IntN(len(o.On)+1))
	}
	return o, true
}

func (m *model) same(names []string, kinds ...kind) (found []*object) {
	for _, name := range names {
		o := m.get(name, kinds...)
		if o == nil || len(found) > 0 && !sameAs(found[0])(o) {
			return nil
		}
		found = append(found, o)
	}
	return found
}

func expectReader(m *model, o Op) (string, bool) {
	all := m.same(o.On, batchKind, arrayKind)
	fails := failureOf(o.arg(1), o.num(2), o.num(3))
	if all == nil || !fails.usable() || fails.what == "beside" && (o.arg(0) != "func" || fails.at > len(all)) {
		return "", false
	}
	f := &flow{end: fails.end()}
	source := m.addSource(o.Out, f, o.arg(0) == "iterator")
	first := *all[0]
	first.table = shapeOf(first.table)
	for i, b := range all {
		it := m.give(source, b.under(first.table), b.holds)
		if fails.at == 0 || i < fails.at-1 {
			f.items = append(f.items, it)
		} else {
			m.leave(it)
		}
	}
	m.addReader(o.Out, readerOf(first.table), first, source)
	if at := o.num(4); at > 0 {
		m.addGate(o.Out, f, at-1, all)
	}
	return "ok", true
}

// series is the items of a source of the program, and its end.
type series[T releaser] struct {
	items []T
	at    int
	fails failure
}

// next returns the next item, which the caller owns.
func (l *series[T]) next() (item T, err error) {
	switch l.at {
	case l.fails.at - 1:
		if l.fails.what == "beside" {
			l.at++
			return l.items[l.at-1], l.fails.err()
		}
		return item, l.fails.err()
	case len(l.items):
		return item, io.EOF
	}
	l.at++
	return l.items[l.at-1], nil
}

// drop releases the items that were not taken.
func (l *series[T]) drop() {
	for i := l.at; i < len(l.items); i++ {
		l.items[i].Release()
	}
	l.at = len(l.items)
}

// seriesOf is a series of batches or arrays with the values of those of the program, which it does not keep alive.
func seriesOf[T sliceable[T]](r *run, o Op, rows func(T) int64) *series[T] {
	l := &series[T]{fails: failureOf(o.arg(1), o.num(2), o.num(3))}
	for _, name := range o.On {
		v := value[T](r, name)
		whole, err := v.Slice(0, rows(v))
		must(err)
		l.items = append(l.items, whole)
	}
	return l
}

// iterator yields the items of a series, which it owns. If it is never called, they are dropped when its source has ended.
func iterator[T releaser](r *run, out string, l *series[T]) func(yield func(T, error) bool) {
	s := &source{drop: l.drop, of: out + ".source"}
	r.sources[out+".source"] = s
	return func(yield func(T, error) bool) {
		if !s.claim() {
			return
		}
		defer l.drop()
		for {
			item, err := l.next()
			if err == io.EOF {
				return
			}
			more := yield(item, err)
			if err == nil {
				item.Release()
			}
			if err != nil || !more {
				return
			}
		}
	}
}

func doReader(r *run, o Op) string {
	t := r.tables[o.Out]
	on := r.at(t.at).ID().Type
	var v any
	var err error
	switch {
	case o.arg(0) == "func":
		v, err = r.funcReader(o, t.schema(), on)
	case t.batch:
		v, err = cdevice.NewRecordReader(t.schema(), on, iterator(r, o.Out, seriesOf(r, o, (*cdevice.RecordBatch).NumRows)))
	default:
		v, err = cdevice.NewArrayReader(fieldOf("", t.types[0]), on, iterator(r, o.Out, seriesOf(r, o, (*cdevice.Array).Len)))
	}
	if err != nil {
		return errorText(err)
	}
	r.values[o.Out] = v
	r.standFor(o.Out, o.On)
	r.readAhead(o.Out)
	return "ok"
}

// funcReader is a reader of a function, which may wait at an item, until the gate opens or the context ends.
func (r *run) funcReader(o Op, schema *arrow.Schema, on device.Type) (*cdevice.RecordReader, error) {
	l := seriesOf(r, o, (*cdevice.RecordBatch).NumRows)
	open := make(chan struct{})
	var waits atomic.Bool
	if o.num(4) > 0 {
		r.values[o.Out+".gate"] = &gate{let: func() { close(open) }, waiting: waits.Load}
	}
	var stopped atomic.Int64
	r.later(func() {
		if !becomes(limit(), func() bool { return stopped.Load() == 1 }) {
			r.note("%s: the stop function of %s was called %d times", r.Name, o.Out, stopped.Load()) // seen by the comparison of worlds
		}
	})
	return cdevice.NewRecordReaderFunc(background, schema, on, func(ctx context.Context) (*cdevice.RecordBatch, error) {
		if l.at+1 == o.num(4) {
			waits.Store(true)
			select {
			case <-open:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return l.next()
	}, func() {
		stopped.Add(1)
		l.drop()
	})
}

func drawWrapReader(g *generator) (Op, bool) {
	first := g.one(given(isOfCPU), recordKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(readerOf(first.table)), On: []string{first.name}}
	for range g.IntN(4) {
		if b := g.one(given(isOfCPU, sameRecord(first)), recordKind); b != nil {
			o.On = append(o.On, b.name)
		}
	}
	return o, true
}

// isOfCPU reports whether an object is in memory of the CPU in all worlds.
func isOfCPU(o *object) bool { return !stands(o.holds, cpu) }

// sameRecord reports whether another record batch or array has exactly the schema of the first, as readers of arrow-go want it.
func sameRecord(first *object) func(*object) bool {
	return func(o *object) bool { return o.shape() == first.shape() }
}

// expectWrapReader leaves out views of memory that a GPU can read, by name: a copy of the reader's items reads the memory, the wait for that
// ends with a reference that arrow-go counts, of which the simulator knows nothing, and it would report the program's next write.
func expectWrapReader(m *model, o Op) (string, bool) {
	var all []*object
	for _, name := range o.On {
		b := m.get(name, recordKind)
		if b == nil || !isOfCPU(b) || len(all) > 0 && !sameRecord(all[0])(b) {
			return "", false
		}
		all = append(all, b)
	}
	f := &flow{}
	source := m.addSource(o.Out, f, false)
	first := *all[0]
	first.table = shapeOf(first.table)
	first.at, first.held = cpu, false
	for _, b := range all {
		f.items = append(f.items, m.give(source, b.under(first.table), b.holds))
		for _, h := range b.holds {
			m.hold(source, h) // a reader of arrow-go keeps its items until its own end
		}
	}
	m.addReader(o.Out, readerOf(first.table), first, source)
	m.loosen(source) // which may come before that of the reader
	return "ok", true
}

// doWrapReader wraps a reader, or a chunked array, of arrow-go. Both are of memory of the CPU.
func doWrapReader(r *run, o Op) string {
	t := r.tables[o.Out]
	r.standFor(o.Out, o.On)
	if !t.batch {
		arrays := make([]arrow.Array, len(o.On))
		for i, name := range o.On {
			arrays[i] = value[arrow.Array](r, name)
		}
		chunked := arrow.NewChunked(caseOf(t.types[0]).Type, arrays)
		defer chunked.Release()
		s, err := cdevice.WrapChunked(chunked, device.CPUDevice())
		return r.madeReader(o.Out, s, err)
	}
	records := make([]arrow.RecordBatch, len(o.On))
	for i, name := range o.On {
		records[i] = value[arrow.RecordBatch](r, name)
	}
	rdr, err := array.NewRecordReader(t.schema(), records)
	if err != nil {
		return errorText(err)
	}
	defer rdr.Release()
	s, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	return r.madeReader(o.Out, s, err)
}

// madeReader keeps a reader that was made.
func (r *run) madeReader(out string, s any, err error) string {
	if err != nil {
		return errorText(err)
	}
	r.values[out] = s
	r.readAhead(out)
	return "ok"
}

func drawConcat(g *generator) (Op, bool) {
	first := g.one(given(joinable), readerKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(readerKind), On: []string{first.name}, Args: []string{"", "0", "0"}}
	for _, s := range g.m.alive(readerKind) {
		if s != first && joinable(s) && sameAs(first)(s) && g.IntN(2) == 0 {
			o.On = append(o.On, s.name)
		}
	}
	if g.IntN(4) == 0 {
		o.Args = []string{"error", num(1 + g.IntN(len(o.On)+1)), num(g.IntN(100))}
	}
	return o, true
}

// joinable reports whether another reader may read all that is left of a reader.
func joinable(s *object) bool {
	f := s.flow()
	return readable(s) && !f.waits() && f.schema.what == "" && f.exports == 0 && !slices.ContainsFunc(f.items, func(it item) bool { return stands(it.from, s.at) })
}

// stands reports whether, in some world, an item is a copy of its memory.
func stands(memories []*object, at place) bool {
	return slices.ContainsFunc(memories, func(h *object) bool { return h.at != at || stands(h.holds, at) })
}

func expectConcat(m *model, o Op) (string, bool) {
	all := m.all(o.On, sameAs, readerKind)
	fails := failureOf("error", o.num(1), o.num(2))
	if all == nil {
		return "", false
	}
	for _, s := range all {
		if !joinable(s) {
			return "", false
		}
	}
	m.behind = true
	f := &flow{end: fails.end()}
	source := m.addSource(o.Out, f, true)
	first := *all[0]
	open := true
	for i, s := range all {
		if i == fails.at-1 {
			open = false
		}
		m.hold(source, s.source())
		part := s.flow()
		m.taken(s)
		for _, it := range part.items {
			if open {
				it.table = it.under(first.table)
				it.lags = append(append([]*object{}, it.lags...), f.lag)
				f.items = append(f.items, it)
			} else {
				m.leave(it)
			}
		}
		if open && part.end.what != "" {
			f.end, open = part.end, false
		}
	}
	m.addReader(o.Out, readerKind, first, source)
	return "ok", true
}

// doConcat makes a reader of readers, of which the iterator holds references.
func doConcat(r *run, o Op) string {
	t := r.tables[o.Out]
	l := &series[*cdevice.RecordReader]{fails: failureOf("error", o.num(1), o.num(2))}
	for _, name := range o.On {
		s := value[*cdevice.RecordReader](r, name)
		s.Retain()
		l.items = append(l.items, s)
	}
	s, err := cdevice.ConcatRecordReaders(t.schema(), r.at(t.at).ID().Type, iterator(r, o.Out, l))
	return r.madeReader(o.Out, s, err)
}

func drawFailedReader(g *generator) (Op, bool) {
	return Op{Out: g.name(readerKind), Args: []string{num(g.IntN(100))}}, true
}

func expectFailedReader(m *model, o Op) (string, bool) {
	f := &flow{end: troubleEnd("trouble", o.num(0)), over: true}
	f.schema = f.end
	source := m.addSource(o.Out, f, false)
	m.addReader(o.Out, readerKind, object{table: table{batch: true}, at: cpu}, source)
	return "ok", true
}

func doFailedReader(r *run, o Op) string {
	s, err := cdevice.NewFailedRecordReader(device.CPU, errors.New(troubleText(o.num(0))))
	return r.madeReader(o.Out, s, err)
}

// releaseGate lets a source go on, and ends the goroutine that waits for it.
func releaseGate(r *run, o Op) string {
	g := value[*gate](r, o.On[0])
	g.let()
	if g.read != nil {
		select {
		case seen := <-g.read:
			if seen == "" {
				r.pop(r.tables[o.On[0]].known.(*waiting).reader.name, true)
			}
		case <-time.After(limit()):
			return "the reader waits, although its source goes on"
		}
	}
	if g.after != nil {
		return errorText(g.after())
	}
	return "ok"
}
