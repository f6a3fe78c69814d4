package metamorphic

import (
	"slices"
	"strings"
)

// Reduce takes operations out of a program that fails, as long as it still fails, and makes what is left smaller. fails is called for
// each program that it tries.
func Reduce(p Program, fails func(Program) bool) Program {
	p.Ops = applying(p)
	for changed := true; changed; {
		changed = false
		for size := max(1, len(p.Ops)/2); size > 0; size /= 2 {
			for at := len(p.Ops) - size; at >= 0; at -= size {
				less := p
				less.Ops = slices.Delete(slices.Clone(p.Ops), at, at+size)
				less.Ops = applying(less)
				if len(less.Ops) < len(p.Ops) && fails(less) {
					p, changed = less, true
					at = min(at, len(p.Ops))
				}
			}
		}
		for i := range p.Ops {
			for _, o := range simpler(p.Ops[i]) {
				other := p
				other.Ops = slices.Clone(p.Ops)
				other.Ops[i] = o
				if other.Ops = applying(other); len(other.Ops) == len(p.Ops) && fails(other) {
					p, changed = other, true
					break
				}
			}
		}
	}
	return p
}

// applying are the operations of a program that apply.
func applying(p Program) (ops []Op) {
	all, _ := steps(p)
	for _, s := range all {
		ops = append(ops, s.Op)
	}
	return ops
}

// simpler are operations that do less than o.
func simpler(o Op) (all []Op) {
	if o.At != "" {
		plain := o
		plain.At = ""
		all = append(all, plain)
	}
	if o.Verb != "produce" && o.Verb != "wrap" && o.Verb != "new" {
		return all
	}
	set := func(i int, arg string) {
		if i < len(o.Args) && o.Args[i] != arg {
			other := o
			other.Args = slices.Clone(o.Args)
			other.Args[i] = arg
			all = append(all, other)
		}
	}
	types := split(o.arg(1))
	for i := range types {
		if len(types) > 1 {
			set(1, strings.Join(slices.Delete(slices.Clone(types), i, i+1), "|"))
		}
	}
	set(1, strings.Join(slices.Repeat([]string{"int64"}, len(types)), "|"))
	set(2, "0")
	set(3, "1")
	set(4, "0")
	set(6, "")
	return all
}
