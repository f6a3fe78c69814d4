package metamorphic

import (
	"fmt"
	"slices"
)

// verb is a kind of operation.
type verb struct {
	name   string
	weight int // how often it is drawn
	// draw picks objects and arguments; it reports false if there are none to pick from.
	draw func(g *generator) (Op, bool)
	// expect changes the model, and returns the result that do must have. It reports false, and changes nothing, if the operation does not
	// apply: an object that it uses was never made, or has ended.
	expect func(m *model, o Op) (want string, ok bool)
	// do does it, and returns its result.
	do    func(r *run, o Op) (got string)
	fixed bool // it runs on the goroutine of the program only
}

// verbs are all kinds of operations, by name.
var verbs = map[string]*verb{}

func register(all ...*verb) {
	for _, v := range all {
		if verbs[v.name] != nil {
			panic(fmt.Sprintf("metamorphic: two operations %q", v.name))
		}
		verbs[v.name] = v
	}
}

// names returns those of all operations that are drawn, sorted.
func names() (all []string) {
	for name, v := range verbs {
		if v.draw != nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
