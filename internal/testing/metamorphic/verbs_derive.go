package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Operations that make readers of readers, and change what they read.

func init() {
	register(
		&verb{name: "map", weight: 5, draw: drawMap, expect: expectMap, do: doMap},
		&verb{name: "prefetch", weight: 2, draw: drawPrefetch, expect: expectPrefetch, do: doPrefetch},
		&verb{name: "map to", weight: 4, draw: drawMapTo, expect: expectMapTo, do: doMapTo},
		&verb{name: "copy reader", weight: 5, draw: drawCopyReader, expect: expectCopyReader, do: doCopyReader},
		&verb{name: "reader as cpu", weight: 4, draw: drawReaderAsCPU, expect: expectReaderAsCPU, do: doReaderAsCPU},
		&verb{name: "about reader", weight: 2, draw: drawAbout, expect: expectAbout, do: doAbout},
	)
}

// mapped are functions of Map.
var mapped = []string{"identity", "slice", "slice", "validate", "fail", "panic", "nil"}

func drawMap(g *generator) (Op, bool) {
	s := drawReadable(g)
	if s == nil {
		return Op{}, false
	}
	o := Op{On: []string{s.name}, Args: []string{mapped[g.IntN(len(mapped))], "0", "0"}}
	switch o.arg(0) {
	case "slice":
		o.Args[1], o.Args[2] = num(g.IntN(3)), num(3+g.IntN(5))
	case "fail", "panic", "nil":
		o.Args[1], o.Args[2] = num(1+g.IntN(3)), num(g.IntN(100))
	}
	return o, true
}

func expectMap(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	how := o.arg(0)
	if s == nil || !readable(s) || how == "panic" && underASan || how == "validate" && !s.ready() {
		return "", false
	}
	f := s.flow()
	m.behind = true
	switch n := o.num(1); {
	case f.over:
	case how == "slice":
		f.items = slices.Clone(f.items)
		for i, it := range f.items {
			f.items[i].table = it.slice(min(n, it.rows), min(o.num(2), it.rows))
		}
	case n > 0 && n <= len(f.items):
		switch how {
		case "panic":
			m.cut(f, n-1, troubleEnd("panic", o.num(2)))
		case "nil":
			m.cut(f, n-1, end{"nil", int(syscall.EINVAL), ""})
		default:
			m.cut(f, n-1, troubleEnd("trouble", o.num(2)))
		}
	}
	return "ok", true
}

// sliceable is a *cdevice.RecordBatch or a *cdevice.Array.
type sliceable[T any] interface {
	releaser
	Slice(i, j int64) (T, error)
	ValidateFull(context.Context) error
}

// mapper returns the function of Map that an operation describes.
func mapper[T sliceable[T]](o Op, rows func(T) int64) func(T) (T, error) {
	var calls atomic.Int64
	return func(b T) (none T, err error) {
		switch n := calls.Add(1); {
		case o.arg(0) == "slice":
			return b.Slice(min(int64(o.num(1)), rows(b)), min(int64(o.num(2)), rows(b)))
		case o.arg(0) == "validate":
			return b, b.ValidateFull(background)
		case o.arg(0) == "identity" || n != int64(o.num(1)):
			return b, nil
		case o.arg(0) == "panic":
			panic(troubleText(o.num(2)))
		case o.arg(0) == "nil":
			return none, nil
		}
		return none, errors.New(troubleText(o.num(2)))
	}
}

func doMap(r *run, o Op) string {
	switch s := r.values[o.On[0]].(type) {
	case *cdevice.RecordReader:
		s.Map(mapper(o, (*cdevice.RecordBatch).NumRows))
	case *cdevice.ArrayReader:
		s.Map(mapper(o, (*cdevice.Array).Len))
	}
	return "ok"
}

func drawPrefetch(g *generator) (Op, bool) {
	s := drawReadable(g)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}}, true
}

func expectPrefetch(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	return "ok", s != nil && readable(s)
}

func doPrefetch(r *run, o Op) string {
	r.readAhead(o.On[0])
	return "ok"
}

// derivable reports whether another reader may be made of a reader.
func derivable(s *object) bool {
	return readable(s) && s.flow().schema.what == "" && s.flow().exports == 0
}

func drawMapTo(g *generator) (Op, bool) {
	s := g.one(given(derivable), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(s.kind), On: []string{s.name}}
	if s.kind == readerKind {
		for _, i := range g.Perm(len(s.types))[:g.IntN(len(s.types)+1)] {
			o.Args = append(o.Args, num(i))
		}
	}
	return o, true
}

func expectMapTo(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !derivable(s) || slices.ContainsFunc(o.nums(), func(i int) bool { return i >= len(s.types) }) {
		return "", false
	}
	to := *s
	picked := func(t table) table {
		if !t.batch {
			return t
		}
		t = t.pick(o.nums()...)
		for i := range t.names {
			t.names[i] = fmt.Sprintf("m%d", i)
		}
		return t
	}
	to.table = picked(picked2(s.table))
	source := m.derive(o.Out, s, func(it item) item {
		it.table = picked(it.table)
		return it
	})
	m.addReader(o.Out, s.kind, to, source)
	return "ok", true
}

// picked2 gives a shape columns, which pick needs.
func picked2(t table) table {
	t.values = make([][]string, len(t.types))
	return t
}

func doMapTo(r *run, o Op) string {
	t := r.tables[o.Out]
	r.share(o.Out, o.On[0])
	if s, ok := r.values[o.On[0]].(*cdevice.RecordReader); ok {
		to, err := s.MapTo(t.schema(), func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b.Select(o.nums()...) })
		return r.madeReader(o.Out, to, err)
	}
	to, err := value[*cdevice.ArrayReader](r, o.On[0]).MapTo(fieldOf("to", t.types[0]),
		func(a *cdevice.Array) (*cdevice.Array, error) { return a, nil })
	return r.madeReader(o.Out, to, err)
}

func drawCopyReader(g *generator) (Op, bool) {
	s := g.one(given(derivable, isReady), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	how := ""
	if g.IntN(8) == 0 {
		how = "canceled"
	}
	return Op{Out: g.name(s.kind), On: []string{s.name}, Args: []string{string([]place{home, other, cpu}[g.IntN(3)]), how}}, true
}

func expectCopyReader(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !derivable(s) || !s.ready() {
		return "", false
	}
	to := *s
	to.at = place(o.arg(0))
	source := m.derive(o.Out, s, func(it item) item {
		it.fresh = true
		return it
	})
	if o.arg(1) == "canceled" {
		f := source.known.(*flow)
		f.items, f.gate, f.end = nil, nil, end{"canceled", int(syscall.ECANCELED), ""}
	}
	m.loosen(s.source())
	m.addReader(o.Out, s.kind, to, source)
	return "ok", true
}

func doCopyReader(r *run, o Op) string {
	ctx, cancel := context.WithCancel(background)
	r.later(cancel)
	if o.arg(1) == "canceled" {
		cancel()
	}
	to := r.at(place(o.arg(0)))
	if s, ok := r.values[o.On[0]].(*cdevice.RecordReader); ok {
		copies, err := popped(r, o.On[0], s.Map).CopyTo(ctx, to)
		return r.madeReader(o.Out, copies, err)
	}
	copies, err := popped(r, o.On[0], value[*cdevice.ArrayReader](r, o.On[0]).Map).CopyTo(ctx, to)
	return r.madeReader(o.Out, copies, err)
}

// popped has a reader drop the original of each item that is read from it.
func popped[R reader, T releaser](r *run, name string, mapped func(func(T) (T, error)) R) R {
	o := r.originals[name]
	if o == nil {
		return r.values[name].(R)
	}
	return mapped(func(b T) (T, error) {
		releaseAll(o.pop())
		return b, nil
	})
}

func drawReaderAsCPU(g *generator) (Op, bool) {
	s := g.one(given(derivable, isReady), readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{Out: g.name(s.kind), On: []string{s.name}}, true
}

func expectReaderAsCPU(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !derivable(s) || !s.ready() {
		return "", false
	}
	to := *s
	to.at = cpu
	m.addReader(o.Out, s.kind, to, m.derive(o.Out, s, func(it item) item { return it }))
	return "ok", true
}

// doReaderAsCPU has a reader of copies stand for one of views of what the CPU cannot access. Beside its items are the originals.
func doReaderAsCPU(r *run, o Op) string {
	accessible := r.at(r.tables[o.On[0]].at).CPUAccessible()
	if s, ok := r.values[o.On[0]].(*cdevice.RecordReader); ok {
		if accessible {
			r.share(o.Out, o.On[0])
			c, err := s.AsCPU(background)
			return r.madeReader(o.Out, c, err)
		}
		beside := r.stand(o.Out)
		c, err := s.Map(pushed[*cdevice.RecordBatch](beside)).CopyTo(background, r.at(cpu))
		return r.madeReader(o.Out, c, err)
	}
	s := value[*cdevice.ArrayReader](r, o.On[0])
	if accessible {
		r.share(o.Out, o.On[0])
		c, err := s.AsCPU(background)
		return r.madeReader(o.Out, c, err)
	}
	beside := r.stand(o.Out)
	c, err := s.Map(pushed[*cdevice.Array](beside)).CopyTo(background, r.at(cpu))
	return r.madeReader(o.Out, c, err)
}

// pushed is a function of Map that keeps what holds the memory of each item.
func pushed[T sliceable[T]](to *originals) func(T) (T, error) {
	return func(b T) (T, error) {
		part, err := b.Slice(0, 0)
		if err == nil {
			to.push(part)
		}
		return b, err
	}
}

func drawAbout(g *generator) (Op, bool) {
	s := g.one(nil, readerKind, arrayReaderKind)
	if s == nil {
		return Op{}, false
	}
	return Op{On: []string{s.name}}, true
}

func expectAbout(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil {
		return "", false
	}
	if s.flow().schema.what != "" {
		return "no schema", true
	}
	return "ok", true
}

// doAbout compares what is known of a reader without reading it.
func doAbout(r *run, o Op) string {
	t := r.tables[o.On[0]]
	want := r.at(t.at).ID().Type
	if s, ok := r.values[o.On[0]].(*cdevice.ArrayReader); ok {
		if s.DeviceType() != want || !arrow.TypeEqual(s.Field().Type, caseOf(t.types[0]).Type) {
			return fmt.Sprintf("%v of %v, not of %v", s.Field(), s.DeviceType(), want)
		}
		return "ok"
	}
	s := value[*cdevice.RecordReader](r, o.On[0])
	switch {
	case s.DeviceType() != want:
		return fmt.Sprintf("of %v, not of %v", s.DeviceType(), want)
	case s.Schema() == nil:
		return "no schema"
	case !s.Schema().Equal(t.schema()):
		return "the schema " + s.Schema().String()
	}
	return "ok"
}
