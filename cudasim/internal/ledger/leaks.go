package ledger

import (
	"fmt"
	"regexp"
	"strconv"
)

// Summary returns a line for all leaks of one function that were made at one place.
func Summary(leaks []string) (lines []string) {
	groups := map[group]*sizes{}
	for _, text := range leaks {
		g, size := parse(text)
		if groups[g] == nil {
			groups[g] = &sizes{least: size, most: size}
		}
		groups[g].add(size)
	}
	for _, text := range leaks {
		g, _ := parse(text)
		switch s := groups[g]; {
		case s.count > 1:
			lines = append(lines, fmt.Sprintf("%s: %d leaks%s%s", g.function, s.count, s, g.rest))
			s.count = 0
		case s.count == 1:
			lines = append(lines, text)
		}
	}
	return lines
}

// group is what the leaks of one line have in common.
type group struct {
	function string
	memory   bool
	rest     string // " on device 0, made at main.load (load.go:14)"
}

var form = regexp.MustCompile(`^(\w+): (?:(\d+) bytes at )?0x[0-9a-f]+(.*)$`)

// parse returns the group of a leak, and its size if it is memory.
func parse(text string) (g group, size int64) {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return group{rest: text}, 0
	}
	size, err := strconv.ParseInt(parts[2], 10, 64)
	return group{parts[1], err == nil, parts[3]}, size
}

// sizes are those of a group.
type sizes struct {
	count       int
	least, most int64
}

func (s *sizes) add(size int64) {
	s.count++
	s.least, s.most = min(s.least, size), max(s.most, size)
}

// String returns " of 64 to 4096 bytes", and nothing if the leaks have no sizes.
func (s *sizes) String() string {
	switch {
	case s.most == 0:
		return ""
	case s.least == s.most:
		return fmt.Sprintf(" of %d bytes", s.most)
	default:
		return fmt.Sprintf(" of %d to %d bytes", s.least, s.most)
	}
}
