package metamorphic

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations that take parts of arrays: children, dictionaries, and those below them.

func init() {
	register(
		&verb{name: "child", weight: 8, draw: drawChild, expect: expectChild, do: doChild},
		&verb{name: "take child", weight: 8, draw: drawTakeChild, expect: expectTakeChild, do: doTakeChild},
	)
}

func drawChild(g *generator) (Op, bool) {
	a := g.one(given(hasParts), arrayKind)
	if a == nil {
		return Op{}, false
	}
	return Op{Out: g.name(arrayKind), On: []string{a.name}, Args: []string{num(g.IntN(a.numParts()))}}, true
}

func hasParts(o *object) bool {
	_, ok := o.partAt([]int{0})
	return ok
}

func expectChild(m *model, o Op) (string, bool) {
	a := m.get(o.On[0], arrayKind)
	if a == nil {
		return "", false
	}
	t, ok := a.partAt([]int{o.num(0)})
	if !ok {
		return "", false
	}
	m.derived(o.Out, t, a)
	return "ok", true
}

func doChild(r *run, o Op) string {
	c := value[*cdevice.Array](r, o.On[0]).Child(o.num(0))
	r.values[o.Out] = c
	return sameField(fieldOf("", r.tables[o.Out].types[0]), c.Field())
}

func drawTakeChild(g *generator) (Op, bool) {
	x := g.one(given(hasParts, func(x *object) bool { return !x.pieces || x.known != nil }), structKind)
	if x == nil {
		return Op{}, false
	}
	var path []int
	for t := x.table; t.numParts() > 0 && g.IntN(1+len(path)) == 0; t = t.part(path[len(path)-1]) {
		path = append(path, g.IntN(t.numParts()))
	}
	return Op{Out: g.name(structKind), On: []string{x.name}, Args: []string{pathText(path)}}, true
}

// expectTakeChild: the parts that were taken of a struct are known by their paths.
func expectTakeChild(m *model, o Op) (string, bool) {
	x := m.get(o.On[0], structKind)
	if x == nil {
		return "", false
	}
	taken, _ := x.known.([]string)
	t, ok := x.partAt(pathOf(o.arg(0)))
	if !ok || slices.ContainsFunc(taken, func(path string) bool { return isBelow(path, o.arg(0)) || isBelow(o.arg(0), path) }) {
		return "", false
	}
	part := *x
	part.table, part.known = t, nil
	m.add(o.Out, structKind, part, x.holds...)
	x.pieces, x.known = true, append(slices.Clone(taken), o.arg(0))
	return "ok", true
}

// isBelow reports whether the second path leads to the end of the first, or to what is below it.
func isBelow(above, path string) bool { return strings.HasPrefix(path+"/", above+"/") }

// doTakeChild moves a part out of its struct. Its event is read from the root, which is valid as long as any of its structs.
func doTakeChild(r *run, o Op) string {
	path := pathOf(o.arg(0))
	if d, ok := r.values[o.On[0]].(*cdevice.CArrowDeviceArray); ok {
		x := foreign.NewDeviceArray()
		r.later(func() { foreign.Forget(x) })
		foreign.TakePartOfDevice(d, path, x)
		r.values[o.Out] = x
	} else {
		x := foreign.NewArray()
		r.later(func() { foreign.Forget(x) })
		foreign.TakePart(value[*cdata.CArrowArray](r, o.On[0]), path, x)
		r.values[o.Out] = x
	}
	return "ok"
}
