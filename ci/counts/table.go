package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// columns are what is counted of one operation, in the order of the table.
var columns = [...]string{"instructions", "Go allocs", "Go bytes", "C mallocs", "Go to C", "C to Go", "driver calls", "syncs"}

// counts are those of one operation.
type counts [len(columns)]float64

// table has the counts of each path.
type table map[string]counts

// least is the smaller count of two measurements, since every disturbance of a path adds to its counts.
func (c counts) least(other counts) counts {
	for i := range c {
		c[i] = min(c[i], other[i])
	}
	return c
}

// merge lowers the counts of the table to those of another measurement, and adds its other paths.
func (t table) merge(other table) {
	for path, c := range other {
		if before, ok := t[path]; ok {
			c = c.least(before)
		}
		t[path] = c
	}
}

const (
	pathWidth   = 46
	columnWidth = 14
)

// line is a path as the file has it.
func (t table) line(path string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", pathWidth, path)
	for _, n := range t[path] {
		fmt.Fprintf(&b, "%*s", columnWidth, number(n))
	}
	return b.String()
}

// number has no exponent.
func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// paths are those of the table, in order.
func (t table) paths() []string {
	var all []string
	for path := range t {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

// title is the line above the paths.
func title() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", pathWidth, "path")
	for _, name := range columns {
		fmt.Fprintf(&b, "%*s", columnWidth, name)
	}
	return b.String()
}

// text is the table as a file: the head, and a line for each path.
func (t table) text(head string) string {
	var text strings.Builder
	text.WriteString(head + title() + "\n")
	for _, path := range t.paths() {
		text.WriteString(t.line(path) + "\n")
	}
	return text.String()
}

// row has a path and its counts: the path ends at two spaces, the counts are numbers.
var row = regexp.MustCompile(`^(\S.*?)  +([0-9. ]+)$`)

// parse reads a file of text. Lines that begin with # are its head.
func parse(file string) (head string, t table, err error) {
	t = table{}
	for text := range strings.SplitSeq(strings.TrimSuffix(file, "\n"), "\n") {
		switch {
		case strings.HasPrefix(text, "#"):
			head += text + "\n"
		case text != title() && text != "":
			if err := t.add(text); err != nil {
				return "", nil, err
			}
		}
	}
	return head, t, nil
}

func (t table) add(text string) error {
	m := row.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("counts: %q is no line of a path", text)
	}
	fields := strings.Fields(m[2])
	if len(fields) != len(columns) {
		return fmt.Errorf("counts: %q has %d counts, not %d", text, len(fields), len(columns))
	}
	var c counts
	for i, field := range fields {
		var err error
		if c[i], err = strconv.ParseFloat(field, 64); err != nil {
			return fmt.Errorf("counts: %q: %w", text, err)
		}
	}
	t[m[1]] = c
	return nil
}

// readTable reads a file, which may be absent.
func readTable(name string) (head string, t table, err error) {
	content, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return "", nil, err
	}
	return parse(string(content))
}
