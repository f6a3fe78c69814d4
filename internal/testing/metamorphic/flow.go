package metamorphic

import (
	"fmt"
	"slices"
	"syscall"
)

// sourceKind is the source of readers and streams, which no program names.
const sourceKind kind = "source"

// foreignKind is a C stream of another library, gateKind a gate that a source waits for.
const (
	foreignKind kind = "f"
	gateKind    kind = "g"
)

// flow is the model's state of a source: its items that are left, and its end. Operations that run do not see it.
type flow struct {
	items   []item
	end     end
	schema  end       // the error of a source that has no schema
	current []*object // memories of the item that Next has made the current one
	has     *item     // that item
	shown   *object   // holds them, once another reader reads the items
	over    bool      // the end was seen
	taken   bool      // another reader reads the items, perhaps ahead
	unsure  bool      // the next items are unpredictable; releases are not
	closed  bool
	lag     *object // holds the last item of an iterator, which has it until it goes on
	busy    bool    // a goroutine waits in Next
	inC     bool    // the wait cannot be interrupted
	gate    *object // item blockAt waits for it; nil: none waits
	blockAt int     // items before the one that waits
	exports int     // streams that were exported, and are not released
	why     end     // how the last of them ended
	given   int     // streams that were exported
	passed  bool    // a stream was imported again, so why is not known
	async   bool
	derived bool // made of another reader
}

// item is a batch or an array of a source.
type item struct {
	table
	from  []*object // memories, which home holds until the item is taken
	home  *object
	fresh bool      // a copy, which has no memory of a producer
	lags  []*object // of the iterators that it came through
}

// end is the end of a stream.
type end struct {
	what string // "": well; "trouble", "panic", "producer" or "closed"
	code int
	text string
}

// seen describes the end to a program in Go.
func (e end) seen() string {
	switch e.what {
	case "":
		return "the end"
	case "panic":
		return "panic " + e.text
	case "producer":
		return fmt.Sprintf("the producer's error %d %s", e.code, e.text)
	case "misfit":
		return "the field " + e.text
	case "closed", "canceled", "nil", "beside", "cut off", "too many":
		return e.what
	}
	return e.text
}

// inC describes the end to a consumer in C.
func (e end) inC() string {
	if e.what == "misfit" {
		e.text = ""
	}
	if e.what == "" {
		return "the end"
	}
	return fmt.Sprintf("code %d %s", e.code, e.text)
}

// imported is the end of a stream that was exported and imported.
func (e end) imported() end {
	if e.what == "" {
		return e
	}
	if e.what == "misfit" {
		e.text = ""
	}
	return end{"producer", e.code, e.text}
}

func troubleEnd(what string, n int) end {
	return end{what, int(syscall.EIO), troubleText(n)}
}

func troubleText(n int) string { return fmt.Sprintf("trouble %d", n) }

// misfitEnd is that of a stream with an item that does not fit: the error names a field.
func misfitEnd(field string) end { return end{"misfit", int(syscall.EINVAL), field} }

var closedEnd = end{"closed", int(syscall.ECANCELED), ""}

// flow returns the flow of a reader or a stream.
func (o *object) flow() *flow { return o.source().known.(*flow) }

func (o *object) source() *object { return o.known.(*object) }

// addSource adds a source of items, which it holds.
func (m *model) addSource(out string, f *flow, lag bool) *object {
	s := m.add(out+".source", sourceKind, object{})
	s.known = f
	if lag {
		l := m.add(out+".lag", sourceKind, object{})
		l.loose = true
		m.hold(s, l)
		l.refs = 0
		f.lag = l
	}
	return s
}

// give has a source hold the memories of an item.
func (m *model) give(s *object, t table, from []*object) item {
	for _, h := range from {
		m.hold(s, h)
	}
	it := item{table: t, from: from, home: s}
	if lag := s.known.(*flow).lag; lag != nil {
		it.lags = []*object{lag}
	}
	return it
}

// addReader adds a reader or a stream of a source, which it holds.
func (m *model) addReader(out string, k kind, o object, source *object) *object {
	made := m.add(out, k, o, source)
	made.known = source
	source.refs = 0
	return made
}

// unhold drops one reference of o to h.
func (m *model) unhold(o, h *object) {
	if i := slices.Index(o.holds, h); i >= 0 {
		o.holds = slices.Delete(slices.Clone(o.holds), i, i+1)
		m.dropped(o, h)
	}
}

// loosen marks the objects that a source holds as possibly released.
func (m *model) loosen(o *object) {
	m.setLoose(o, true)
	for _, h := range o.holds {
		if h.kind == sourceKind && !h.loose {
			m.loosen(h)
		}
	}
}

func (m *model) setLoose(o *object, loose bool) {
	if o.loose == loose {
		return
	}
	o.loose = loose
	for _, h := range o.holds {
		if loose {
			h.unsure++
			m.slow(h)
		} else {
			h.unsure--
		}
		m.recheck(h)
	}
}

// lost is the end of a source: items that it had read ahead from its own sources are gone.
func (m *model) lost(o *object) {
	for _, h := range o.holds {
		if h.kind == sourceKind {
			m.loosen(h)
		}
	}
}

// slow marks a memory, and those that it holds, as ones that a goroutine may end.
func (m *model) slow(h *object) {
	if h.kind != memoryKind {
		return
	}
	h.owner.slow = true
	for _, inner := range h.holds {
		m.slow(inner)
	}
}

// slowAll marks the memories that a source holds, also for sources that it is made of.
func (m *model) slowAll(source *object) {
	for _, h := range source.holds {
		m.slow(h)
		if h.kind == sourceKind {
			m.slowAll(h)
		}
	}
}

// recheck decides whether a memory may have ended: if all that hold it are unsure.
func (m *model) recheck(h *object) {
	if h.kind != memoryKind || !h.alive() {
		return
	}
	switch unsure := h.refs+h.users == h.unsure; {
	case unsure && m.ended[h.name] != perhaps:
		m.ended[h.name], h.slow = perhaps, true
		m.setLoose(h, true)
	case !unsure && m.ended[h.name] == perhaps:
		delete(m.ended, h.name)
		m.setLoose(h, false)
	}
}

// take takes the next item, which the caller passes on. It reports false at the end, which is then seen.
func (m *model) take(f *flow) (it item, ok bool) {
	if len(f.items) == 0 {
		return it, false
	}
	it, f.items = f.items[0], f.items[1:]
	f.blockAt--
	return it, true
}

// pass has the source of an item hold it no more, when its consumer does.
func (m *model) pass(it item) {
	for _, lag := range it.lags {
		m.dropLag(lag)
		for _, h := range it.from {
			m.hold(lag, h)
		}
	}
	for _, h := range it.from {
		m.unhold(it.home, h)
	}
}

func (m *model) dropLag(lag *object) {
	for _, h := range lag.holds {
		m.unhold(lag, h)
	}
}

// reached is the end of a flow that was seen: its source may be closed from then on.
func (m *model) reached(s *object) {
	s.known.(*flow).over = true
	m.loosen(s)
}

// currentOf names the current item of the reader of a source, which outlives a source that is closed.
func currentOf(source string) string { return source + ".current" }

// dropCurrent ends the current item of a reader.
func (m *model) dropCurrent(s *object) {
	f := s.known.(*flow)
	for _, h := range f.current {
		m.unhold(s, h)
	}
	f.current, f.has = nil, nil
}

// setCurrent makes an item the current one.
func (m *model) setCurrent(s *object, it item) {
	f := s.known.(*flow)
	f.has = &it
	if it.fresh {
		return
	}
	for _, h := range it.from {
		m.hold(s, h)
	}
	f.current = it.from
}

// derive adds a source of the results of f for the items of a reader, which is not read from any more.
func (m *model) derive(out string, from *object, f func(item) item) *object {
	base := from.flow()
	m.behind = true
	m.taken(from)
	d := &flow{end: base.end, schema: base.schema, gate: base.gate, blockAt: base.blockAt, derived: true}
	if base.over {
		d.gate = nil // a source that has ended, or was closed, is not asked
	}
	for _, it := range base.items {
		d.items = append(d.items, f(it))
	}
	source := m.addSource(out, d, false)
	m.hold(source, from.source())
	return source
}

// cut ends a flow before item n, from 0.
func (m *model) cut(f *flow, n int, e end) {
	for _, it := range f.items[n:] {
		m.leave(it)
	}
	f.items, f.end = f.items[:n], e
}

// leave marks an item that is never read: a goroutine that reads ahead finds the end before it, and closes its source.
func (m *model) leave(it item) {
	name := it.home.name + ".left"
	left := m.objects[name]
	if left == nil || !left.alive() {
		left = m.add(name, sourceKind, object{})
		left.loose = true
		m.hold(it.home, left)
		left.refs = 0
	}
	for _, h := range it.from {
		m.hold(left, h)
		m.unhold(it.home, h)
	}
}

// taken marks a reader whose items another one reads, perhaps ahead. At their end the other one drops its reference, and with the last
// one the current item goes.
func (m *model) taken(s *object) {
	f := s.flow()
	f.taken = true
	if f.current == nil {
		return
	}
	current := m.add(s.name+".current", sourceKind, object{}, f.current...)
	m.setLoose(current, true)
	m.hold(s.source(), current)
	current.refs = 0
	f.shown = current
	for _, h := range f.current {
		m.unhold(s.source(), h)
	}
	f.current = nil
}

// view is the text of an item for a reader.
func (it item) view(held bool) string {
	if held {
		return rowsText(it.rows)
	}
	return it.String()
}

func rowsText(n int) string { return fmt.Sprintf("%d rows, not read", n) }

// readable reports whether a program may read from a reader.
func readable(o *object) bool {
	f := o.flow()
	return !f.taken && !f.unsure && !f.busy && !f.blocks()
}

// blocks reports whether the next read would wait.
func (f *flow) blocks() bool { return f.gate != nil && f.gate.refs > 0 && f.blockAt <= 0 }

// waits reports whether some item waits.
func (f *flow) waits() bool { return f.gate != nil && f.gate.refs > 0 }

// streamEnded is the release of an exported stream.
func (m *model) streamEnded(o *object) {
	f := o.flow()
	f.exports--
	f.why = end{"canceled", 0, ""}
	if f.over {
		f.why = f.end
	}
}

// sameAs reports whether another object fits into one reader with the first.
func sameAs(first *object) func(*object) bool {
	return func(o *object) bool {
		return o.kind == first.kind && o.batch == first.batch && o.at == first.at && o.held == first.held && slices.Equal(o.types, first.types)
	}
}

// readerOf is the kind of the reader of a table.
func readerOf(t table) kind {
	if t.batch {
		return readerKind
	}
	return arrayReaderKind
}

// shapeOf is a table without rows.
func shapeOf(t table) table {
	t.rows, t.values = 0, nil
	if !t.batch {
		t.names = nil
	}
	return t
}

// under is a table under the names of a reader.
func (t table) under(shape table) table {
	if t.batch {
		t.names = shape.names
	}
	return t
}

// waiting is the model's state of a gate: the reader that a goroutine reads.
type waiting struct {
	reader *object
	seen   string
	early  string // the end of the source, which a reader that has no reference left may see before its own; "": none
}

// opened is the end of a gate: a read that has waited for it goes on.
func (m *model) opened(g *object) {
	w, ok := g.known.(*waiting)
	if !ok || w.reader == nil {
		return
	}
	f := w.reader.flow()
	f.busy = false
	switch {
	case !w.reader.source().alive():
		w.seen, w.early = closedEnd.seen(), f.end.seen()
		f.unsure = true
	default:
		w.seen = m.next(w.reader)
	}
}
