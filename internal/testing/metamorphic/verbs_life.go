package metamorphic

import (
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations that retain and release, and work that is held back.

func init() {
	register(
		&verb{name: "retain", weight: 4, draw: drawRetain, expect: expectRetain, do: doRetain},
		&verb{name: "release", weight: 30, draw: drawRelease, expect: expectRelease, do: doRelease},
		&verb{name: "misuse", weight: 4, draw: drawMisuse, expect: expectMisuse, do: doMisuse},
		&verb{name: "hold", weight: 14, draw: drawHold, expect: expectHold, do: doHold, fixed: true},
		&verb{name: "fire", weight: 4, draw: drawFire, expect: expectFire, do: doFire, fixed: true},
		&verb{name: "used on", weight: 4, draw: drawUsedOn, expect: expectUsedOn, do: doUsedOn},
		&verb{name: "wait on", weight: 2, draw: drawUsedOn, expect: expectWaitOn, do: doWaitOn},
	)
}

func drawRetain(g *generator) (Op, bool) {
	b := g.one(nil, batchKind, arrayKind, recordKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}}, true
}

func expectRetain(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind, recordKind)
	if b == nil {
		return "", false
	}
	b.refs++
	return "ok", true
}

func doRetain(r *run, o Op) string {
	r.values[o.On[0]].(releaser).Retain()
	return "ok"
}

// releasable are the kinds that release knows, with its functions for them.
var releasable = map[kind]func(r *run, o Op) string{
	producerKind: releaseProducer,
	structKind:   releaseStruct,
	batchKind:    releaseCounted,
	arrayKind:    releaseCounted,
	recordKind:   releaseCounted,
	viewKind:     func(*run, Op) string { return "ok" },
}

func kinds() (all []kind) {
	for k := range releasable {
		all = append(all, k)
	}
	return all
}

func drawRelease(g *generator) (Op, bool) {
	b := g.one(nil, kinds()...)
	if b == nil || len(g.m.alive(kinds()...)) < 4 && g.IntN(3) > 0 {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{num(g.IntN(foreign.Ways))}}, true
}

func expectRelease(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], kinds()...)
	if b == nil {
		return "", false
	}
	m.release(b)
	return "ok", true
}

func doRelease(r *run, o Op) string { return releasable[r.tables[o.On[0]].kind](r, o) }

func releaseCounted(r *run, o Op) string {
	r.values[o.On[0]].(releaser).Release()
	return "ok"
}

func releaseProducer(r *run, o Op) string {
	way := foreign.Way(o.num(0))
	if way == foreign.Twice { // which a producer need not bear
		way = foreign.Here
	}
	return errorText(foreign.Release(value[*foreign.Producer](r, o.On[0]).Plain(), way))
}

func releaseStruct(r *run, o Op) string {
	if x, ok := r.values[o.On[0]].(*cdevice.CArrowDeviceArray); ok {
		return errorText(foreign.Release(foreign.ArrayOf(x), foreign.Way(o.num(0))))
	}
	x := value[*cdata.CArrowArray](r, o.On[0])
	return errorText(foreign.Release(x, foreign.Way(o.num(0))))
}

// misuses are calls after the last release.
var misuses = []string{"part", "slice", "host view", "export", "retain", "release", "copy", "used on", "synchronize"}

func drawMisuse(g *generator) (Op, bool) {
	var fit []string
	for _, name := range g.m.order {
		if g.m.dead(name, batchKind, arrayKind) != nil {
			fit = append(fit, name)
		}
	}
	if len(fit) == 0 {
		return Op{}, false
	}
	return Op{On: []string{fit[g.IntN(len(fit))]}, Args: []string{misuses[g.IntN(len(misuses))]}}, true
}

func expectMisuse(m *model, o Op) (string, bool) {
	if m.dead(o.On[0], batchKind, arrayKind) == nil {
		return "", false
	}
	if o.arg(0) == "retain" || o.arg(0) == "release" || o.arg(0) == "part" {
		return "panic " + failed("ErrReleased"), true
	}
	return failed("ErrReleased"), true
}

func doMisuse(r *run, o Op) string {
	b, batch := r.values[o.On[0]].(*cdevice.RecordBatch)
	a, _ := r.values[o.On[0]].(*cdevice.Array)
	var err error
	switch o.arg(0) {
	case "retain":
		return panicText(r.values[o.On[0]].(releaser).Retain)
	case "release":
		return panicText(r.values[o.On[0]].(releaser).Release)
	case "part":
		if batch {
			return panicText(func() { b.Column(0) })
		}
		return panicText(func() { a.Child(0) })
	case "slice":
		if batch {
			_, err = b.Slice(0, 0)
		} else {
			_, err = a.Slice(0, 0)
		}
	case "host view":
		if batch {
			_, err = b.HostView(background)
		} else {
			_, err = a.HostView(background)
		}
	case "export":
		x := foreign.NewDeviceArray()
		defer foreign.Forget(x)
		if batch {
			err = cdevice.ExportRecordBatch(b, x, nil)
		} else {
			err = cdevice.ExportArray(a, x, nil)
		}
	case "copy":
		if batch {
			_, err = b.CopyTo(background, r.home)
		} else {
			_, err = a.CopyTo(background, r.home)
		}
	case "used on":
		if batch {
			err = b.UsedOn(r.work)
		} else {
			err = a.UsedOn(r.work)
		}
	case "synchronize":
		if batch {
			err = b.Synchronize(background)
		} else {
			err = a.Synchronize(background)
		}
	}
	r.note("%v", err)
	return errorText(err)
}

func drawHold(g *generator) (Op, bool) { return Op{}, !g.m.holding }

func expectHold(m *model, _ Op) (string, bool) {
	if m.holding {
		return "", false
	}
	m.holding = true
	return "ok", true
}

func doHold(r *run, _ Op) string {
	r.hold()
	return "ok"
}

func drawFire(g *generator) (Op, bool) { return Op{}, g.m.holding }

func expectFire(m *model, _ Op) (string, bool) {
	if !m.holding {
		return "", false
	}
	m.fire()
	return "ok", true
}

func doFire(r *run, _ Op) string {
	r.fire()
	return "ok"
}

func drawUsedOn(g *generator) (Op, bool) {
	b := g.one(nil, batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	on := "work"
	if g.m.holding && g.IntN(3) > 0 {
		on = "held"
	}
	return Op{On: []string{b.name}, Args: []string{on}}, true
}

func expectUsedOn(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || o.arg(0) == "held" && !m.holding {
		return "", false
	}
	if o.arg(0) == "held" {
		for _, h := range b.holds {
			h.used = true
			if !b.repeats {
				h.size = max(h.size, b.bytes())
			}
		}
	}
	return "ok", true
}

// stream returns the stream whose work is held back, or the other one.
func (r *run) stream(name string) device.Stream {
	if name == "held" {
		return r.held
	}
	return r.work
}

func doUsedOn(r *run, o Op) string {
	s := r.stream(o.arg(0))
	for _, v := range append([]any{r.values[o.On[0]]}, r.beside(o.On[0])...) {
		if err := v.(interface {
			UsedOn(device.Stream) error
		}).UsedOn(s); err != nil {
			return errorText(err)
		}
	}
	return "ok"
}

// beside are the originals of an object that is a copy in this world.
func (r *run) beside(name string) (all []any) {
	for _, v := range r.kept[name] {
		all = append(all, v)
	}
	return all
}

func expectWaitOn(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || o.arg(0) == "held" && !m.holding || o.arg(0) == "work" && b.held {
		return "", false
	}
	return "ok", true
}

func doWaitOn(r *run, o Op) string {
	s := r.stream(o.arg(0))
	if b, ok := r.values[o.On[0]].(*cdevice.RecordBatch); ok {
		return errorText(b.WaitOn(s))
	}
	return errorText(value[*cdevice.Array](r, o.On[0]).WaitOn(s))
}
