package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Between these lines a page has a table.
const (
	begin = "<!-- pairs: \"make pairs\" writes this table from the tests that passed in \"make test\" -->"
	end   = "<!-- end of pairs -->"
)

// pages are the pages with a table, and how it is made.
var pages = map[string]func([]pair) string{"README.md": short, "docs/interop.md": long}

// library is a row of the short table.
type library struct{ peer, version, on string }

func (l library) String() string { return strings.TrimSpace(l.peer + " " + l.version) }

// directions are the tests of each direction.
type directions map[string][]string

// grouped returns the pairs by library and protocol.
func grouped(pairs []pair) map[library]map[string]directions {
	all := map[library]map[string]directions{}
	for _, p := range pairs {
		l := library{p.Peer, p.Version, p.On}
		if all[l] == nil {
			all[l] = map[string]directions{}
		}
		if all[l][p.Protocol] == nil {
			all[l][p.Protocol] = directions{}
		}
		d := all[l][p.Protocol]
		d[p.Direction] = append(d[p.Direction], p.Tests...)
	}
	return all
}

// sorted returns the libraries in the order of names.json; of one peer, those on the CPU first.
func sorted(all map[library]map[string]directions) []library {
	libraries := make([]library, 0, len(all))
	for l := range all {
		libraries = append(libraries, l)
	}
	slices.SortFunc(libraries, func(a, b library) int {
		return cmp.Or(cmp.Compare(rank(a.peer), rank(b.peer)), cmp.Compare(a.on, b.on), cmp.Compare(a.version, b.version))
	})
	return libraries
}

// short is the table of libraries, with one row for those that work alike.
func short(pairs []pair) string {
	var rows []string
	alike := map[string][]string{} // libraries by the rest of their row
	all := grouped(pairs)
	for _, l := range sorted(all) {
		var both, to, from []string
		for _, protocol := range names.Protocols {
			switch d := all[l][protocol]; {
			case d[toIt] != nil && d[fromIt] != nil:
				both = append(both, protocol)
			case d[toIt] != nil:
				to = append(to, protocol)
			case d[fromIt] != nil:
				from = append(from, protocol)
			}
		}
		rest := row(l.on, strings.Join(both, ", "), strings.Join(to, ", "), strings.Join(from, ", "))
		if alike[rest] == nil {
			rows = append(rows, rest)
		}
		alike[rest] = append(alike[rest], l.String())
	}
	s := row("with", "on", "both ways", "only to it", "only from it") + "|---|---|---|---|---|\n"
	for _, rest := range rows {
		s += strings.TrimSuffix(row(strings.Join(alike[rest], ", ")), "|\n") + rest
	}
	return s
}

// long is the table with one row for each library and protocol, and the tests.
func long(pairs []pair) string {
	s := row("with", "on", "protocol", "from it", "to it") + "|---|---|---|---|---|\n"
	all := grouped(pairs)
	for _, l := range sorted(all) {
		for _, protocol := range names.Protocols {
			if d := all[l][protocol]; d != nil {
				s += row(l.String(), l.on, protocol, listed(d[fromIt]), listed(d[toIt]))
			}
		}
	}
	return s
}

// row is one row of a table.
func row(cells ...string) string {
	s := "|"
	for _, cell := range cells {
		s += strings.TrimRight(" "+cell, " ") + " |"
	}
	return s + "\n"
}

// listed returns the names of files, each once.
func listed(tests []string) string {
	var quoted []string
	for _, test := range tests {
		quoted = append(quoted, "`"+path.Base(test)+"`")
	}
	slices.Sort(quoted)
	return strings.Join(slices.Compact(quoted), ", ")
}

// parts cuts a page at its table.
func parts(page string) (before, table, after string, err error) {
	before, rest, found := strings.Cut(page, begin+"\n")
	table, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", "", "", fmt.Errorf("no line %q with a line %q below it", begin, end)
	}
	return before, table, after, nil
}

// replace returns the page with the table.
func replace(page, table string) (string, error) {
	before, _, after, err := parts(page)
	return before + begin + "\n" + table + end + after, err
}

// differences returns the rows that only one of two tables has: "-" those of the page, "+" those that
// the tests have proved.
func differences(page, table string) ([]string, error) {
	_, stated, _, err := parts(page)
	if err != nil {
		return nil, err
	}
	var found []string
	has, proved := strings.Split(stated, "\n"), strings.Split(table, "\n")
	for _, row := range has {
		if !slices.Contains(proved, row) {
			found = append(found, "- "+row)
		}
	}
	for _, row := range proved {
		if !slices.Contains(has, row) {
			found = append(found, "+ "+row)
		}
	}
	if found == nil && stated != table {
		found = []string{"the same rows in another order"}
	}
	return found, nil
}
