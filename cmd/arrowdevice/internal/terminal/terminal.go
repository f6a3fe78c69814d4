// Package terminal describes the file that a command writes to: whether a person reads it there,
// how wide it is, and what it can show.
package terminal

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// Width returns the columns of the terminal, and 80 for another file.
func Width(f *os.File) int {
	if columns, ok := size(f); ok && columns > 0 {
		return columns
	}
	return 80
}

// Is reports whether the file is a terminal.
func Is(f *os.File) bool {
	_, ok := size(f)
	return ok
}

// Colours reports whether text in the file may have colours: on a terminal, unless the user
// objects (https://no-color.org).
func Colours(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Is(f)
}

// UTF8 reports whether the locale is one of UTF-8, in the order in which C looks for it.
func UTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := os.Getenv(name); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}

// Style writes text with attributes, or without if it is false.
type Style bool

func (s Style) with(code, text string) string {
	if !s || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold is for headings.
func (s Style) Bold(text string) string { return s.with("1", text) }

// Dim is for what matters less.
func (s Style) Dim(text string) string { return s.with("2", text) }

// Red is for errors.
func (s Style) Red(text string) string { return s.with("31", text) }

// Green is for what is as it should be.
func (s Style) Green(text string) string { return s.with("32", text) }

// Yellow is for warnings.
func (s Style) Yellow(text string) string { return s.with("33", text) }

// Colour gives text the n-th of four colours.
func (s Style) Colour(n int, text string) string {
	return s.with([]string{"35", "33", "32", "36"}[n%4], text)
}

// Wrap breaks text at spaces into lines of at most width characters. A longer word has a line of
// its own. Lines of the text stay lines.
func Wrap(text string, width int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
				line += " " + word
			default:
				lines = append(lines, line)
				line = word
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// Bytes returns a size for people: "64 KiB", "79.1 GiB".
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0")
	return text + " " + units[unit]
}
