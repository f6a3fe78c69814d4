package main

import (
	"flag"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// filter selects what is measured. An empty one selects all.
type filter struct {
	operation, shape, peer *regexp.Regexp
	columns                []int
}

func (f *filter) flags(set *flag.FlagSet) {
	for name, to := range map[string]**regexp.Regexp{"only": &f.operation, "shape": &f.shape, "peer": &f.peer} {
		set.Func(name, "measure what matches this `regular expression`", func(text string) (err error) {
			*to, err = regexp.Compile(text)
			return err
		})
	}
	set.Func("columns", "measure these `numbers` of columns, separated by commas", func(text string) error {
		for field := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil {
				return err
			}
			f.columns = append(f.columns, n)
		}
		return nil
	})
}

func matches(pattern *regexp.Regexp, text string) bool {
	return pattern == nil || pattern.MatchString(text)
}

func (f filter) selects(operation, shape string, columns int) bool {
	return matches(f.operation, operation) && matches(f.shape, shape) && (len(f.columns) == 0 || slices.Contains(f.columns, columns))
}

// alone reports whether a measurement that has no shape and no peers is selected.
func (f filter) alone(name string) bool {
	return matches(f.operation, name) && f.shape == nil && f.peer == nil && len(f.columns) == 0
}

// peers keeps the selected peers, and closes the others.
func (f filter) peers(all []peer) (kept []peer) {
	for _, p := range all {
		if matches(f.peer, p.name) {
			kept = append(kept, p)
		} else {
			p.end()
		}
	}
	return kept
}

// exactly matches one text.
func exactly(text string) *regexp.Regexp {
	return regexp.MustCompile("^" + regexp.QuoteMeta(text) + "$")
}
