package metamorphic

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations of asynchronous streams whose producer is another library's.

func init() {
	register(
		&verb{name: "push", weight: 8, draw: drawPush, expect: expectPush, do: doPush},
		&verb{name: "silent", weight: 2, draw: drawSilent, expect: expectSilent, do: doSilent},
	)
}

// pushes are the troubles of producers.
var pushes = map[string]foreign.AsyncTrouble{
	"well": foreign.Well, "error": foreign.Error, "lost": foreign.Lost, "extract": foreign.Extract, "extract told": foreign.ExtractTold, "flood": foreign.Flood,
}

var pushNames = []string{"well", "well", "error", "lost", "extract", "extract told", "flood", "flood"}

func drawPush(g *generator) (Op, bool) {
	first := g.one(given(func(p *object) bool { return p.batch }), producerKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(readerKind), On: []string{first.name}, Args: []string{pushNames[g.IntN(len(pushNames))], num(1 + g.IntN(3)), "0", "0", "0"}}
	for _, p := range g.m.alive(producerKind) {
		if p != first && sameAs(first)(p) {
			o.On = append(o.On, p.name)
		}
	}
	if o.arg(0) == "flood" && len(o.On) < 3 {
		o.Args[0] = "well"
	}
	switch o.arg(0) {
	case "well":
	case "flood":
		o.Args[1], o.Args[2] = "1", num(2+g.IntN(len(o.On)-2))
	case "extract", "extract told":
		o.Args[2] = num(1 + g.IntN(len(o.On)))
	default:
		o.Args[2] = num(1 + g.IntN(len(o.On)+1))
	}
	o.Args[3] = num(int([]syscall.Errno{syscall.EIO, syscall.EINVAL, syscall.ECANCELED, syscall.ENOMEM}[g.IntN(4)]))
	if o.arg(0) == "well" && g.IntN(3) == 0 {
		o.Args[4] = num(1 + g.IntN(len(o.On)+1))
	}
	return o, true
}

// pushed is the producer that an operation describes.
func pushOf(o Op) foreign.Push {
	p := foreign.Push{Trouble: pushes[o.arg(0)], At: o.num(2), Code: o.num(3), BlockAt: -1}
	if p.Trouble == foreign.Error || p.Trouble == foreign.ExtractTold {
		p.Text = troubleText(p.At)
	}
	if o.num(4) > 0 {
		p.BlockAt = o.num(4)
	}
	return p
}

// endOf returns the end of a producer's stream, and the number of batches before it.
func endOf(p foreign.Push, all int) (e end, items int) {
	switch p.Trouble {
	case foreign.Error:
		return end{"producer", p.Code, p.Text}, p.At - 1
	case foreign.Lost:
		return end{"cut off", int(syscall.EIO), ""}, p.At - 1
	case foreign.Extract:
		return end{"producer", p.Code, ""}, p.At - 1
	case foreign.ExtractTold:
		return end{"producer", p.Code, p.Text}, p.At - 1
	case foreign.Flood:
		return end{"too many", int(syscall.EINVAL), ""}, p.At
	}
	return end{}, all
}

// pushing returns the producers of a stream, if it can be.
func (m *model) pushing(o Op) []*object {
	producers := m.all(o.On, sameAs, producerKind)
	if producers == nil || !producers[0].batch {
		return nil
	}
	switch p := pushOf(o); {
	case p.BlockAt > len(producers)+1, p.At > len(producers)+1:
		return nil
	case p.At > len(producers) && (p.Trouble == foreign.Extract || p.Trouble == foreign.ExtractTold):
		return nil
	case p.Trouble == foreign.Flood && (p.At < 2 || p.At >= len(producers)):
		return nil
	}
	return producers
}

func expectPush(m *model, o Op) (string, bool) {
	producers := m.pushing(o)
	if producers == nil {
		return "", false
	}
	m.behind = true
	f := &flow{async: true, inC: true}
	source := m.addSource(o.Out, f, false)
	e, n := endOf(pushOf(o), len(producers))
	f.end = e
	for i, p := range producers {
		it := m.give(source, p.table, p.holds)
		if i < n {
			f.items = append(f.items, it)
		} else {
			m.leave(it)
		}
	}
	m.slowSource(source)
	first := *producers[0]
	first.table = shapeOf(first.table)
	m.addReader(o.Out, readerKind, first, source)
	if at := o.num(4); at > 0 {
		m.addGate(o.Out, f, at-1, producers)
	}
	for _, p := range producers {
		m.release(p)
	}
	return "ok", true
}

// startPush starts the producer of an operation, which sends to a handler.
func (r *run) startPush(o Op, p foreign.Push, handler *cdevice.CArrowAsyncDeviceStreamHandler) *foreign.Pusher {
	for _, name := range o.On {
		p.Producers = append(p.Producers, value[*foreign.Producer](r, name))
	}
	t := r.tables[o.On[0]]
	p.Schema, p.ID = t.schema(), r.at(t.at).ID()
	pusher := p.Start(handler)
	r.later(func() {
		if !becomes(limit(), pusher.Done) {
			r.note("%s: the producer of %s has not ended", r.Name, o)
			return
		}
		if again, schemas := pusher.Again(), pusher.Schemas(); again != 0 || schemas != 0 {
			r.note("%s: the producer of %s had %d calls too many, and %d schemas were not released", r.Name, o, again, schemas)
		}
		pusher.Free()
	})
	return pusher
}

// newHandler returns a handler in C memory.
func (r *run) newHandler() *cdevice.CArrowAsyncDeviceStreamHandler {
	h := foreign.NewHandler()
	r.later(func() { foreign.Forget(h) })
	return h
}

func doPush(r *run, o Op) string {
	handler := r.newHandler()
	stream, err := cdevice.ImportAsync(background, handler, o.num(1), r.importOptions(r.at(r.tables[o.On[0]].at))...)
	if err != nil {
		return errorText(err)
	}
	p := pushOf(o)
	pusher := r.startPush(o, p, handler)
	if p.BlockAt > 0 {
		r.values[o.Out+".gate"] = &gate{let: pusher.Let, waiting: pusher.Waiting}
	}
	s, err := stream.Reader(background)
	if err != nil {
		return describe(err)
	}
	r.values[o.Out] = s
	return "ok"
}

func drawSilent(g *generator) (Op, bool) {
	first := g.one(given(func(p *object) bool { return p.batch }), producerKind)
	if first == nil {
		return Op{}, false
	}
	return Op{Out: g.name(gateKind), On: []string{first.name}, Args: []string{"well", num(1 + g.IntN(3))}}, true
}

func expectSilent(m *model, o Op) (string, bool) {
	producers := m.pushing(o)
	if producers == nil {
		return "", false
	}
	g := m.add(o.Out, gateKind, object{})
	g.loose = true
	for _, p := range producers {
		for _, h := range p.holds {
			m.hold(g, h)
		}
		m.release(p)
	}
	return strings.Repeat(failed("DeadlineExceeded")+"\n", 2), true
}

// doSilent has a producer that gives no schema. The stream is closed, and ends when the producer answers at last.
func doSilent(r *run, o Op) string {
	handler := r.newHandler()
	stream, err := cdevice.ImportAsync(background, handler, o.num(1), r.importOptions(r.at(r.tables[o.On[0]].at))...)
	if err != nil {
		return errorText(err)
	}
	p := pushOf(o)
	p.BlockAt = 0
	pusher := r.startPush(o, p, handler)
	g := &gate{let: pusher.Let, waiting: pusher.Waiting}
	r.values[o.Out] = g
	ctx, cancel := context.WithTimeout(background, 2*time.Millisecond)
	defer cancel()
	_, asked := stream.Reader(ctx)
	closed := stream.Close(ctx)
	g.after = func() error { return stream.Close(background) }
	return fmt.Sprintf("%s\n%s\n", errorText(asked), errorText(closed))
}
