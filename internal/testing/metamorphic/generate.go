package metamorphic

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// generator draws a program.
type generator struct {
	*rand.Rand
	m      *model
	count  map[kind]int
	shapes [][]string // the types of the columns of batches
	usual  int        // the number of rows of most of them
	scenes [][]string // those of the verbs that are drawn
	scene  []string   // the operations that come next
}

// Generate draws a program of n operations, whose verbs match.
func Generate(seed uint64, n int, match *regexp.Regexp) Program {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), m: newModel(), count: map[kind]int{}}
	g.usual = 1 + g.IntN(9)
	for range 3 {
		g.shapes = append(g.shapes, g.types(1+g.IntN(4)))
	}
	p := Program{Seed: seed}
	other := func(name string) bool { return !match.MatchString(name) }
	all := slices.DeleteFunc(names(), other)
	g.scenes = slices.DeleteFunc(slices.Clone(scenes), func(s []string) bool { return slices.ContainsFunc(s, other) })
	total := 0
	for _, name := range all {
		total += verbs[name].weight
	}
	for tries := 0; len(p.Ops) < n && tries < 20*n; tries++ {
		v := g.next(all, total)
		o, ok := v.draw(g)
		if !ok {
			continue
		}
		o.Verb = v.name
		if !v.fixed {
			switch g.IntN(8) {
			case 0:
				o.At = "goroutine"
			case 1:
				o.At = "callback"
			case 2:
				o.At = "thread"
			}
		}
		if _, ok := v.expect(g.m, o); ok {
			p.Ops = append(p.Ops, o)
		}
	}
	return p
}

// scenes are operations that are drawn one after the other, each of the objects that were made last: what comes together by chance too
// rarely.
var scenes = [][]string{
	{"hold", "combine", "export", "release", "release"},
	{"hold", "copy", "export", "release", "release", "fire"},
	{"hold", "with column", "used on", "release", "fire"},
	{"hold", "produce", "import", "slice", "expire", "column", "wait on", "fire", "read"},
	{"hold", "import", "used on", "export", "release", "release"},
	{"produce", "import", "export", "take child", "release", "release", "read struct"},
	{"import", "export", "take child", "take child", "take child", "read struct", "release", "release", "import struct", "read"},
	{"import", "column", "child", "child", "slice", "release", "release", "read"},
	{"import", "column", "child", "export", "release", "read struct"},
	{"with event", "export", "read struct", "import struct", "read"},
	{"column", "view", "slice", "release", "read view"},
	{"import", "hold", "used on", "used on", "release"},
	{"wrap", "hold", "export", "release", "release"},
	{"wrap", "with event", "hold", "export", "release", "release"},
	{"hold", "produce", "import", "column", "with column", "expire", "expire"},
	{"hold", "produce", "import", "slice", "expire", "outwait", "read"},
	{"hold", "produce", "import", "export at once", "as cpu", "fire", "export at once"},
	{"hold", "produce", "import", "column", "column", "combine", "expire"},
	{"import", "slice", "flight", "read"},
	{"produce many", "stream", "import stream", "next", "close reader"},
	{"reader", "consume", "request", "extract", "request", "extract", "read struct", "cancel"},
	{"reader", "async", "next", "keep and next", "cancel export", "wait for export"},
	{"produce many", "stream", "import stream", "read behind", "slice", "close expires", "let"},
	{"produce many", "stream", "import stream", "prefetch", "keep and next", "release", "read", "close reader"},
	{"reader", "map", "export stream", "get schema", "get next", "get next", "release", "read struct"},
}

// next draws an operation, of which all have the weight total together.
func (g *generator) next(all []string, total int) *verb {
	if len(g.scene) == 0 && len(g.scenes) > 0 && g.IntN(12) == 0 {
		g.scene = g.scenes[g.IntN(len(g.scenes))]
	}
	if len(g.scene) > 0 {
		v := verbs[g.scene[0]]
		g.scene = g.scene[1:]
		return v
	}
	at := g.IntN(total)
	for _, name := range all {
		v := verbs[name]
		if at < v.weight {
			return v
		}
		at -= v.weight
	}
	panic("metamorphic: a weight too many")
}

func (g *generator) types(n int) (types []string) {
	for range n {
		if g.IntN(3) == 0 {
			types = append(types, []string{"int64", "int32", "float64", "utf8", "bool"}[g.IntN(5)])
		} else {
			types = append(types, caseNames[g.IntN(len(caseNames))])
		}
	}
	return types
}

// name returns the name of a new object.
func (g *generator) name(k kind) string {
	g.count[k]++
	return string(k) + num(g.count[k])
}

// one picks an object of a kind that the program has, and that all conditions allow.
func (g *generator) one(conditions []func(*object) bool, kinds ...kind) *object {
	var fit []*object
	for _, o := range g.m.alive(kinds...) {
		if all(o, conditions) {
			fit = append(fit, o)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	latest := g.IntN(3)
	if len(g.scene) > 0 && g.IntN(5) > 0 {
		latest = 0
	}
	switch latest { // they are used more
	case 0:
		fit = fit[len(fit)-1:]
	case 1:
		fit = fit[max(0, len(fit)-3):]
	}
	return fit[g.IntN(len(fit))]
}

func all(o *object, conditions []func(*object) bool) bool {
	for _, c := range conditions {
		if !c(o) {
			return false
		}
	}
	return true
}

// when is a list of conditions.
func given(conditions ...func(*object) bool) []func(*object) bool { return conditions }

func isReady(o *object) bool { return o.ready() }

// rows draws a number of rows, often the same one, so that arrays fit into one batch: few, none or many.
func (g *generator) rows() int {
	if g.IntN(3) > 0 {
		return g.usual
	}
	switch g.IntN(12) {
	case 0:
		return 0
	case 1:
		return 300 + g.IntN(700)
	}
	return 1 + g.IntN(9)
}

// bounds draws a part of n elements.
func (g *generator) bounds(n int) (i, j int) {
	i = g.IntN(n + 1)
	return i, i + g.IntN(n-i+1)
}

func joined(types []string) string { return strings.Join(types, "|") }

func split(types string) []string {
	if types == "" {
		return nil
	}
	return strings.Split(types, "|")
}
