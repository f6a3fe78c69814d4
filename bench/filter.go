package main

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// filter selects what is measured. An empty one selects all.
type filter struct {
	operation, shape, peer pattern
	columns                numbers
}

func (f *filter) flags(set *flag.FlagSet) {
	set.Var(&f.operation, "only", "measure the operations that match this regular expression")
	set.Var(&f.shape, "shape", "measure the shapes that match this regular expression")
	set.Var(&f.peer, "peer", "measure beside the peers that match this regular expression")
	set.Var(&f.columns, "columns", "measure these numbers of columns, separated by commas")
}

func (f filter) selects(operation, shape string, columns int) bool {
	return f.operation.matches(operation) && f.shape.matches(shape) && (len(f.columns) == 0 || slices.Contains(f.columns, columns))
}

// alone reports whether a measurement that has no shape and no peers is selected.
func (f filter) alone(name string) bool {
	return f.operation.matches(name) && f.shape.re == nil && f.peer.re == nil && len(f.columns) == 0
}

// peers keeps the selected peers, and closes the others.
func (f filter) peers(all []peer) (kept []peer) {
	for _, p := range all {
		if f.peer.matches(p.name) {
			kept = append(kept, p)
		} else {
			p.end()
		}
	}
	return kept
}

// exactly matches one text.
func exactly(text string) pattern {
	return pattern{regexp.MustCompile("^(?:" + regexp.QuoteMeta(text) + ")$")}
}

// pattern is a regular expression as a flag; without one, it matches everything.
type pattern struct{ re *regexp.Regexp }

func (p pattern) matches(text string) bool { return p.re == nil || p.re.MatchString(text) }

func (p *pattern) String() string {
	if p == nil || p.re == nil {
		return ""
	}
	return p.re.String()
}

func (p *pattern) Set(text string) (err error) {
	p.re, err = regexp.Compile(text)
	return err
}

// numbers are integers as a flag.
type numbers []int

func (n *numbers) String() string { return strings.Trim(fmt.Sprint([]int(*n)), "[]") }

func (n *numbers) Set(text string) error {
	for field := range strings.SplitSeq(text, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return err
		}
		*n = append(*n, v)
	}
	return nil
}
