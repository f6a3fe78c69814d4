package ledger

import (
	"fmt"
	"regexp"
	"strconv"
)

// Summary returns a line for all leaks of one function that were made at one place.
func Summary(leaks []string, more ...More) (lines []string) {
	at := map[place]*line{}
	var all []*line
	of := func(text string) *line {
		p, size := parse(text)
		if at[p] == nil {
			at[p] = &line{place: p, text: text, least: size, most: size}
			all = append(all, at[p])
		}
		l := at[p]
		l.least, l.most = min(l.least, size), max(l.most, size)
		return l
	}
	for _, text := range leaks {
		of(text).listed++
	}
	for _, m := range more {
		of(m.Text).more += m.Count
	}
	for _, l := range all {
		lines = append(lines, l.String())
	}
	return lines
}

// place is what the leaks of one line have in common.
type place struct {
	function string
	memory   bool
	rest     string // " on device 0, made at main.load (load.go:14)"
}

var form = regexp.MustCompile(`^(\w+): (?:(\d+) bytes at )?0x[0-9a-f]+(.*)$`)

// parse returns the place of a leak, and its size if it is memory.
func parse(text string) (p place, size int64) {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return place{rest: text}, 0
	}
	size, err := strconv.ParseInt(parts[2], 10, 64)
	return place{parts[1], err == nil, parts[3]}, size
}

// line counts the leaks of a place: those that are listed, and more, of which only one is known.
type line struct {
	place
	text         string // of the first
	listed, more int
	least, most  int64
}

func (l *line) String() string {
	count := l.listed + l.more
	switch {
	case l.text == "":
		return counted(count) + " more"
	case l.more == 0 && count == 1:
		return l.text
	default:
		return l.function + ": " + counted(count) + l.sizes() + l.rest
	}
}

func counted(leaks int) string {
	if leaks == 1 {
		return "1 leak"
	}
	return fmt.Sprintf("%d leaks", leaks)
}

// sizes returns " of 64 to 4096 bytes", and nothing if the leaks have no sizes, or some that are not known.
func (l *line) sizes() string {
	switch {
	case l.most == 0 || l.more > 0:
		return ""
	case l.least == l.most:
		return fmt.Sprintf(" of %d bytes", l.most)
	default:
		return fmt.Sprintf(" of %d to %d bytes", l.least, l.most)
	}
}
