package metamorphic

import (
	"context"
	"time"
)

// Operations of sources that do not answer: a reader waits, and all else goes on.

func init() {
	register(
		&verb{name: "read behind", weight: 14, draw: drawReadBehind, expect: expectReadBehind, do: doReadBehind},
		&verb{name: "let", weight: 8, draw: drawLet, expect: expectLet, do: doLet},
		&verb{name: "close expires", weight: 14, draw: drawCloseExpires, expect: expectCloseExpires, do: doCloseExpires},
	)
}

// drawReadBehind draws a read that waits, on a goroutine.
func drawReadBehind(g *generator) (Op, bool) {
	s := g.one(given(willWait), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name, s.flow().gate.name}}, true
}

func willWait(s *object) bool {
	f := s.flow()
	return !f.taken && !f.unsure && !f.busy && !f.over && f.blocks() && f.gate.known == nil
}

func expectReadBehind(m *model, o Op) (string, bool) {
	s, g := m.get(o.On[0], readerKind, arrayReaderKind), m.get(o.On[1], gateKind)
	if s == nil || g == nil || !willWait(s) || s.flow().gate != g {
		return "", false
	}
	s.flow().busy = true
	g.known = &waiting{reader: s}
	m.dropCurrent(s.source())
	return "ok", true
}

// doReadBehind returns when the source waits. The reader may be released meanwhile.
func doReadBehind(r *run, o Op) string {
	s, g := value[reader](r, o.On[0]), value[*gate](r, o.On[1])
	r.pop(o.On[0], false)
	g.read = make(chan string, 1)
	go func() {
		if s.Next() {
			g.read <- ""
		} else {
			g.read <- describe(s.Err())
		}
	}()
	if !becomes(limit(), g.waiting) {
		return "the source is not asked"
	}
	return "ok"
}

func drawLet(g *generator) (Op, bool) {
	gate := g.one(given(func(gate *object) bool { return gate.known != nil }), gateKind)
	if gate == nil {
		return Op{}, false
	}
	return Op{On: []string{gate.name, gate.known.(*waiting).reader.name}}, true
}

func expectLet(m *model, o Op) (string, bool) {
	g := m.get(o.On[0], gateKind)
	if g == nil || g.known == nil || g.known.(*waiting).reader.name != o.On[1] {
		return "", false
	}
	w := g.known.(*waiting)
	held := w.reader.held
	m.release(g)
	f := w.reader.flow()
	if f.has != nil && w.reader.refs == 0 {
		return "an item", true
	}
	if f.has != nil {
		return f.has.view(held), true
	}
	return w.seen, true
}

// doLet has the source go on, and reads what the reader that waits gets.
func doLet(r *run, o Op) string {
	g, s := value[*gate](r, o.On[0]), value[reader](r, o.On[1])
	g.let()
	var seen string
	select {
	case seen = <-g.read:
	case <-time.After(limit()):
		return "the reader waits, although its source goes on"
	}
	g.read = nil
	t := r.tables[o.On[1]]
	if w := r.tables[o.On[0]].known.(*waiting); w.early != "" && (seen == w.early || seen == "canceled") {
		return w.seen
	}
	if seen != "" {
		return seen
	}
	r.pop(o.On[1], true)
	if t.refs == 0 {
		return "an item"
	}
	return r.seenItem(current(s), t.table, "host view", t.held)
}

// drawCloseExpires draws a Close of a reader that waits for a source in C, which cannot be interrupted.
func drawCloseExpires(g *generator) (Op, bool) {
	s := g.one(given(waitsInC), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}}, true
}

func waitsInC(s *object) bool {
	f := s.flow()
	return f.busy && f.blocks() && f.inC
}

func expectCloseExpires(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !waitsInC(s) {
		return "", false
	}
	m.close(s.source())
	return failed("DeadlineExceeded"), true
}

// doCloseExpires ends the context of Close, and not the closing.
func doCloseExpires(r *run, o Op) string {
	ctx, cancel := context.WithTimeout(background, 2*time.Millisecond)
	defer cancel()
	return errorText(value[reader](r, o.On[0]).Close(ctx))
}
