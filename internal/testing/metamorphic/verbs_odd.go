package metamorphic

import (
	"slices"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Streams of another library of which one item does not fit: it has other columns, or memory of another device than the stream has.

func init() {
	register(&verb{name: "odd item", weight: 6, draw: drawOddItem, expect: expectOddItem, do: doOddItem})
}

// unlike is a device that no world has memory of.
const unlike = device.Vulkan

func drawOddItem(g *generator) (Op, bool) {
	first := g.one(nil, producerKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{On: []string{first.name}, Args: []string{"device", "claim", "0"}}
	for _, p := range g.m.alive(producerKind) {
		if p != first && sameAs(first)(p) {
			o.On = append(o.On, p.name)
		}
	}
	if odd := g.one(given(oddTo(first)), producerKind); odd != nil && g.IntN(2) == 0 {
		o.Args[1] = "columns"
		o.On = append(o.On, odd.name)
	}
	at := 1 + g.IntN(len(o.On))
	if last := len(o.On) - 1; o.arg(1) == "columns" {
		at = 2 + g.IntN(last)
		o.On[at-1], o.On[last] = o.On[last], o.On[at-1]
	}
	o.Args[2] = num(at)
	switch how := g.IntN(3); {
	case how == 0 && first.batch:
		o.Args[0] = "push"
	case how == 1 && first.at == cpu && o.arg(1) == "columns":
		o.Args[0] = "plain"
	}
	o.Out = g.name(foreignKind)
	if o.arg(0) == "push" {
		o.Out = g.name(readerKind)
	}
	return o, true
}

// oddTo reports whether a batch has another number of columns than the first.
func oddTo(first *object) func(*object) bool {
	return func(o *object) bool {
		return first.batch && o.batch && o.at == first.at && o.held == first.held && len(o.types) != len(first.types)
	}
}

// oddItems returns the producers of the stream, if it can be.
func (m *model) oddItems(o Op) (all []*object) {
	first, at := m.get(o.On[0], producerKind), o.num(2)
	if first == nil || at < 1 || at > len(o.On) || at == 1 && o.arg(1) == "columns" || o.arg(0) == "push" && !first.batch {
		return nil
	}
	for i, name := range o.On {
		p, fits := m.get(name, producerKind), sameAs(first)
		if o.arg(1) == "columns" && i == at-1 {
			fits = oddTo(first)
		}
		if p == nil || slices.Contains(all, p) || i > 0 && !fits(p) {
			return nil
		}
		all = append(all, p)
	}
	return all
}

// oddField is the field that the error of the item names.
func oddField(o Op) string {
	field := map[string]string{"device": "ArrowDeviceArrayStream.get_next.ArrowDeviceArray", "plain": "ArrowArrayStream.get_next.ArrowArray", "push": "ArrowAsyncTask.extract_data.ArrowDeviceArray"}[o.arg(0)]
	switch {
	case o.arg(1) == "claim":
		return field + ".device_type"
	case o.arg(0) == "plain":
		return field + ".n_children"
	}
	return field + ".array.n_children"
}

func expectOddItem(m *model, o Op) (string, bool) {
	producers := m.oddItems(o)
	if producers == nil || o.arg(0) == "plain" && (producers[0].at != cpu || o.arg(1) == "claim") {
		return "", false
	}
	push := o.arg(0) == "push"
	f := &flow{async: push, inC: push}
	source := m.addSource(o.Out, f, false)
	for _, p := range producers {
		f.items = append(f.items, m.give(source, p.table, p.holds))
	}
	first := *producers[0]
	first.table = shapeOf(first.table)
	first.plain = o.arg(0) == "plain"
	m.cut(f, o.num(2)-1, misfitEnd(oddField(o)))
	if push {
		m.behind = true
		m.slowSource(source)
		m.addReader(o.Out, readerKind, first, source)
	} else {
		m.addReader(o.Out, foreignKind, first, source)
	}
	for _, p := range producers {
		m.release(p)
	}
	return "ok", true
}

func doOddItem(r *run, o Op) string {
	if o.arg(1) == "claim" {
		value[*foreign.Producer](r, o.On[o.num(2)-1]).Claim(unlike)
	}
	if o.arg(0) == "push" {
		return doPush(r, Op{Out: o.Out, On: o.On, Args: []string{"well", num(1 + len(o.On)%3)}})
	}
	return doStream(r, Op{Out: o.Out, On: o.On, Args: []string{o.arg(0)}})
}
