package metamorphic

import (
	"context"
	"slices"
	"strings"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Operations that read from readers, and end them.

func init() {
	register(
		&verb{name: "next", weight: 18, draw: drawNext, expect: expectNext, do: doNext},
		&verb{name: "keep", weight: 8, draw: drawKeep, expect: expectKeep, do: doKeep},
		&verb{name: "keep and next", weight: 6, draw: drawKeepNext, expect: expectKeepNext, do: doKeepNext},
		&verb{name: "loop", weight: 6, draw: drawLoop, expect: expectLoop, do: doLoop},
		&verb{name: "read on host", weight: 4, draw: drawHostReader, expect: expectHostReader, do: doHostReader},
		&verb{name: "close reader", weight: 3, draw: drawClose, expect: expectClose, do: doClose},
		&verb{name: "retain reader", weight: 2, draw: drawRetainReader, expect: expectRetainReader, do: doRetain},
	)
	releasable[readerKind] = releaseReader
	releasable[arrayReaderKind] = releaseReader
}

// reader is a *cdevice.RecordReader or a *cdevice.ArrayReader.
type reader interface {
	releaser
	Next() bool
	Err() error
	Close(context.Context) error
	Wait(context.Context) error
}

// current is the item that a reader lends: nil if there is none.
func current(s reader) releaser {
	switch s := s.(type) {
	case *cdevice.RecordReader:
		if b := s.RecordBatch(); b != nil {
			return b
		}
	case *cdevice.ArrayReader:
		if a := s.Array(); a != nil {
			return a
		}
	}
	return nil
}

// seenItem reads an item, unless its memory is filled by work that is held back.
func (r *run) seenItem(v releaser, shape table, how string, held bool) string {
	switch v := v.(type) {
	case *cdevice.RecordBatch:
		if !v.Schema().Equal(shape.schema()) {
			return "the schema " + v.Schema().String() + ", not " + shape.schema().String()
		}
		if held {
			return rowsText(int(v.NumRows()))
		}
		return r.readBatch(v, how)
	case *cdevice.Array:
		if held {
			return rowsText(int(v.Len()))
		}
		return r.readArray(v, how)
	}
	return "nothing"
}

func drawReadable(g *generator, conditions ...func(*object) bool) *object {
	return g.one(append(conditions, readable), readerKind, arrayReaderKind)
}

func drawNext(g *generator) (Op, bool) {
	s := drawReadable(g)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}, Args: []string{hows[g.IntN(len(hows))]}}, true
}

func expectNext(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !readable(s) {
		return "", false
	}
	return m.next(s), true
}

// next makes the next item the current one.
func (m *model) next(s *object) string {
	f := s.flow()
	it, ok := m.take(f)
	if !ok {
		m.dropCurrent(s.source())
		m.reached(s.source())
		return f.end.seen()
	}
	old := f.current
	f.current = nil
	m.setCurrent(s.source(), it)
	for _, h := range old {
		m.unhold(s.source(), h)
	}
	m.pass(it)
	return it.view(s.held)
}

func doNext(r *run, o Op) string {
	s := value[reader](r, o.On[0])
	if !s.Next() {
		r.pop(o.On[0], false)
		return describeEnd(r, s)
	}
	r.pop(o.On[0], true)
	if s.Err() != nil {
		return "an error beside an item: " + s.Err().Error()
	}
	return r.seenItem(current(s), r.tables[o.On[0]].table, o.arg(0), r.tables[o.On[0]].held)
}

// describeEnd is the end of a reader whose Next has returned false.
func describeEnd(_ *run, s reader) string {
	if current(s) != nil {
		return "an item after the end"
	}
	return describe(s.Err())
}

func drawKeep(g *generator) (Op, bool) {
	s := g.one(given(hasCurrent), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{Out: g.name(ofTable(s.table)), On: []string{s.name}}, true
}

func hasCurrent(s *object) bool { return s.flow().has != nil && !s.flow().busy }

func expectKeep(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !hasCurrent(s) {
		return "", false
	}
	it := s.flow().has
	b := *s
	b.table, b.known = it.table, nil
	m.add(o.Out, ofTable(s.table), b, it.owns()...)
	return "ok", true
}

func doKeep(r *run, o Op) string {
	switch v := current(value[reader](r, o.On[0])).(type) {
	case *cdevice.RecordBatch:
		r.currentTo(o.On[0], o.Out)
		return made(r, o.Out)(v.Slice(0, v.NumRows()))
	case *cdevice.Array:
		r.currentTo(o.On[0], o.Out)
		return made(r, o.Out)(v.Slice(0, v.Len()))
	}
	return "no item"
}

func drawKeepNext(g *generator) (Op, bool) {
	s := g.one(given(hasCurrent, readable), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{Out: g.name(ofTable(s.table)), On: []string{s.name}, Args: []string{hows[g.IntN(len(hows))]}}, true
}

func expectKeepNext(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !readable(s) {
		return "", false
	}
	if _, ok := expectKeep(m, o); !ok {
		return "", false
	}
	return m.next(s), true
}

// doKeepNext keeps the item itself, which the reader has no reference to after the next call of Next.
func doKeepNext(r *run, o Op) string {
	v := current(value[reader](r, o.On[0]))
	if v == nil {
		return "no item"
	}
	v.Retain()
	r.values[o.Out] = v
	r.currentTo(o.On[0], o.Out)
	return doNext(r, Op{On: o.On, Args: o.Args})
}

func drawLoop(g *generator) (Op, bool) {
	s := drawReadable(g, isReady)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}, Args: []string{num(1 + g.IntN(4)), hows[g.IntN(len(hows))]}}, true
}

// read has a loop read n items, or all there are, and describes them.
func (m *model) read(s *object, n int) string {
	f := s.flow()
	var seen []string
	for range n {
		if f.blocks() {
			break
		}
		it, ok := m.take(f)
		if !ok {
			m.reached(s.source())
			seen = append(seen, f.end.seen())
			break
		}
		m.pass(it)
		seen = append(seen, it.String())
	}
	return strings.Join(seen, "\n")
}

// reads is how many items a loop may read: it stops before one that waits.
func (f *flow) reads(n int) bool {
	return f.gate == nil || f.gate.refs == 0 || n <= f.blockAt
}

func expectLoop(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !readable(s) || !s.ready() || !s.flow().reads(o.num(0)) {
		return "", false
	}
	return m.read(s, o.num(0)), true
}

// doLoop reads items in a loop, and breaks out of it.
func doLoop(r *run, o Op) string {
	var seen []string
	each := func(v releaser, err error) bool {
		if err != nil {
			seen = append(seen, describe(err))
			return true
		}
		r.skip(o.On[0])
		seen = append(seen, r.seenItem(v, r.tables[o.On[0]].table, o.arg(1), false))
		return len(seen) < o.num(0)
	}
	whole := true
	switch s := r.values[o.On[0]].(type) {
	case *cdevice.RecordReader:
		for b, err := range s.All() {
			if whole = each(b, err); !whole {
				break
			}
		}
	case *cdevice.ArrayReader:
		for a, err := range s.All() {
			if whole = each(a, err); !whole {
				break
			}
		}
	}
	if whole && value[reader](r, o.On[0]).Err() == nil {
		seen = append(seen, describe(nil))
	}
	return strings.Join(seen, "\n")
}

func drawHostReader(g *generator) (Op, bool) {
	s := drawReadable(g, isReady, func(s *object) bool { return s.kind == readerKind })
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}, Args: []string{num(1 + g.IntN(4))}}, true
}

func expectHostReader(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind)
	if s == nil || !readable(s) || !s.ready() || !s.flow().reads(o.num(0)) {
		return "", false
	}
	return m.read(s, o.num(0)), true
}

// doHostReader reads some items with a reader of arrow-go, which it then releases.
func doHostReader(r *run, o Op) string {
	s := value[*cdevice.RecordReader](r, o.On[0])
	h := s.HostReader(background, nil)
	defer h.Release()
	var seen []string
	for len(seen) < o.num(0) {
		if !h.Next() {
			return strings.Join(append(seen, describe(h.Err())), "\n")
		}
		r.skip(o.On[0])
		rec := h.RecordBatch()
		if s.DeviceType().CPUAccessible() {
			for _, c := range rec.Columns() {
				r.lookAt(c.Data())
			}
		}
		seen = append(seen, seenRecord(rec))
	}
	return strings.Join(seen, "\n")
}

func drawClose(g *generator) (Op, bool) {
	s := g.one(given(closable), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}}, true
}

// closable reports whether Close waits for nothing, or ends its wait.
func closable(s *object) bool {
	f := s.flow()
	return !f.waits() || !f.inC && !f.derived
}

func expectClose(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !closable(s) || m.awaited(s.source()) || m.waitsBelow(s.source()) {
		return "", false
	}
	m.close(s.source())
	return "ok", true
}

// waitsBelow reports whether a source of C that a source is made of may wait, although that has ended: it is read ahead.
func (m *model) waitsBelow(source *object) bool {
	return slices.ContainsFunc(source.holds, func(h *object) bool {
		f, ok := h.known.(*flow)
		return ok && h.kind == sourceKind && (f.waits() && f.inC || m.waitsBelow(h))
	})
}

// awaited reports whether a goroutine waits in a reader that was made of a source.
func (m *model) awaited(source *object) bool {
	return slices.ContainsFunc(m.order, func(name string) bool {
		o := m.objects[name]
		f, ok := o.known.(*flow)
		return ok && o.kind == sourceKind && slices.Contains(o.holds, source) && (f.busy || m.awaited(o))
	})
}

// close ends a source whose reader is closed. The current item of the reader stays.
func (m *model) close(source *object) {
	f := source.known.(*flow)
	f.unsure = f.unsure || f.taken
	if !f.over {
		f.end, f.over, f.closed = closedEnd, true, true
	}
	for _, it := range f.items {
		if !f.taken && it.home == source {
			for _, h := range it.from {
				m.unhold(source, h)
			}
		}
	}
	f.items = nil
	if f.lag != nil {
		m.ended[source.name] = soon // an iterator that was not called is not called any more
	}
	m.spoil(source)
	for _, h := range source.holds {
		ahead := f.taken && h == m.objects[source.name+".left"] // another reader may have read it ahead
		if h.kind == sourceKind && h != f.lag && h != f.shown && !ahead {
			m.unhold(source, h) // the reader that this one is made of
		}
	}
}

// spoil marks all that is made of a source that was closed.
func (m *model) spoil(source *object) {
	m.loosen(source)
	for _, name := range m.order {
		o := m.objects[name]
		if d, ok := o.known.(*flow); ok && o.kind == sourceKind && slices.Contains(o.holds, source) && !d.unsure {
			d.unsure = true
			for _, it := range d.items { // which it may have read ahead
				for _, h := range it.from {
					m.hold(o, h)
				}
			}
			m.spoil(o)
		}
	}
}

func doClose(r *run, o Op) string {
	err := value[reader](r, o.On[0]).Close(background)
	if s := r.imported[o.On[0]]; s != nil && err == nil && s.Released() == 0 {
		return "closed before its stream was released"
	}
	return errorText(err)
}

func drawRetainReader(g *generator) (Op, bool) {
	s := g.one(nil, readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}}, true
}

func expectRetainReader(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil {
		return "", false
	}
	s.refs++
	return "ok", true
}

func releaseReader(r *run, o Op) string {
	value[reader](r, o.On[0]).Release()
	return "ok"
}
