// Package text lays out what the commands print for people.
package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Width is the columns of a line, of which a longer paragraph has several.
const Width = 80

// Wrap breaks text at spaces into lines of at most width characters. A longer word has a line of
// its own. Lines of the text stay lines.
func Wrap(text string, width int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
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
