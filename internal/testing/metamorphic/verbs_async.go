package metamorphic

import (
	"context"
	"strings"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Operations of asynchronous streams, both sides of which are in this process.

func init() {
	register(
		&verb{name: "async", weight: 6, draw: drawAsync, expect: expectAsync, do: doAsync},
		&verb{name: "wait for export", weight: 8, draw: drawWaitExport, expect: expectWaitExport, do: doWaitExport},
		&verb{name: "cancel export", weight: 10, draw: drawCancelExport, expect: expectCancelExport, do: doCancelExport},
	)
	releasable[asyncKind] = func(*run, Op) string { return "ok" }
}

// asyncExport is the sending side of a stream.
type asyncExport struct {
	export *cdevice.AsyncExport
	cancel func() // ends the context of ExportAsync
	stream *cdevice.AsyncStream
}

func drawAsync(g *generator) (Op, bool) {
	s := g.one(given(readableByAll), readerKind)
	if s == nil {
		return Op{}, false
	}
	return Op{Out: g.name(readerKind), On: []string{s.name}, Args: []string{num(1 + g.IntN(3)), num(g.IntN(4))}}, true
}

func readableByAll(s *object) bool { return readable(s) && s.flow().exports == 0 }

// expectAsync adds the reader of the stream, and its sending side, which is named after it.
func expectAsync(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind)
	if s == nil || !readableByAll(s) {
		return "", false
	}
	if e, fails := s.flow().schemaFails(); fails {
		return e.imported().seen(), true
	}
	source := m.derive(o.Out, s, func(it item) item {
		it.lags = nil
		return it
	})
	f := source.known.(*flow)
	m.sent(s)
	sent := &sender{source: source, end: f.end}
	f.end, f.async = f.end.imported(), true
	f.inC, f.derived = false, false
	m.addReader(o.Out, readerKind, *s, source)
	m.add(o.Out+".export", asyncKind, object{}).known = sent
	return "ok", true
}

// sent marks a reader that goroutines of an asynchronous stream read, and export.
func (m *model) sent(s *object) {
	s.flow().async = true
	for _, it := range s.flow().items {
		for _, h := range it.owns() {
			h.exported = h.exported || s.at != cpu
		}
	}
	m.slowSource(s.source())
}

// slowSource marks all memories of a source as ones that a goroutine may end.
func (m *model) slowSource(source *object) {
	for _, h := range source.holds {
		if h.kind == sourceKind {
			m.slowSource(h)
		}
		m.slow(h)
	}
}

func doAsync(r *run, o Op) string {
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	ctx, cancel := context.WithCancel(background)
	r.later(cancel)
	stream, err := cdevice.ImportAsync(background, handler, o.num(0), r.importOptions(r.at(r.tables[o.On[0]].at))...)
	if err != nil {
		return errorText(err)
	}
	export, err := cdevice.ExportAsync(ctx, value[*cdevice.RecordReader](r, o.On[0]), handler)
	if err != nil {
		return errorText(err)
	}
	s, err := stream.Reader(background)
	if err != nil {
		return strings.Replace(describe(err), "closed", "closed by the other side", 1)
	}
	r.values[o.Out] = s
	r.values[o.Out+".export"] = &asyncExport{export, cancel, stream}
	r.share(o.Out, o.On[0])
	return "ok"
}

// drawWaitExport draws a wait for the end of a stream, or for one that has not ended.
func drawWaitExport(g *generator) (Op, bool) {
	e := g.one(nil, asyncKind)
	if e == nil {
		return Op{}, false
	}
	return Op{On: []string{e.name}, Args: []string{e.known.(*sender).state(e)}}, true
}

// sender is the model's state of the sending side of a stream: the source of the other side, and its own end.
type sender struct {
	source   *object
	end      end
	canceled bool // by its context
}

// state is how the stream is: "ended", "open", "over" somehow, or "" if that is not known.
func (s *sender) state(*object) string {
	f := s.source.known.(*flow)
	switch {
	case s.canceled, f.closed, !s.source.alive():
		return "over"
	case f.unsure:
		return ""
	case f.over && f.end == s.end.imported():
		return "ended"
	case !f.over && !f.taken && len(f.items) > 4: // a source that waits may fail before it does
		return "open"
	}
	return ""
}

func expectWaitExport(m *model, o Op) (string, bool) {
	e := m.get(o.On[0], asyncKind)
	if e == nil || o.arg(0) == "" || e.known.(*sender).state(e) != o.arg(0) {
		return "", false
	}
	switch s := e.known.(*sender); o.arg(0) {
	case "ended":
		return s.end.seen(), true
	case "open":
		return failed("DeadlineExceeded"), true
	}
	return "over", true
}

func doWaitExport(r *run, o Op) string {
	e := value[*asyncExport](r, o.On[0])
	enough := limit()
	if o.arg(0) == "open" {
		enough = 2 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(background, enough)
	defer cancel()
	err := e.export.Wait(ctx)
	switch {
	case o.arg(0) == "over" && ctx.Err() == nil:
		return "over"
	case ctx.Err() != nil:
		return errorText(err)
	}
	return describe(err)
}

func drawCancelExport(g *generator) (Op, bool) {
	e := g.one(given(g.m.cancelable), asyncKind)
	if e == nil {
		return Op{}, false
	}
	return Op{On: []string{e.name}}, true
}

// cancelable reports whether a stream can be canceled: not while a reader waits, of it or above it, whose result is open.
func (m *model) cancelable(e *object) bool {
	s := e.known.(*sender)
	return !s.canceled && !s.source.known.(*flow).busy && !m.awaited(s.source)
}

// expectCancelExport leaves the number of batches open that the other side still gets.
func expectCancelExport(m *model, o Op) (string, bool) {
	e := m.get(o.On[0], asyncKind)
	if e == nil || !m.cancelable(e) {
		return "", false
	}
	s := e.known.(*sender)
	s.canceled = true
	s.source.known.(*flow).unsure = true
	m.spoil(s.source)
	return "ok", true
}

func doCancelExport(r *run, o Op) string {
	value[*asyncExport](r, o.On[0]).cancel()
	return "ok"
}
