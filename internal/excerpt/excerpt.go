// Package excerpt shortens foreign text before it is put into an error: a name of 60 MB must not
// make an error of 240 MB, or hide the cause.
package excerpt

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	// Input is the maximum number of bytes of input that an error quotes.
	Input = 100
	// Message is the maximum number of bytes of an error message that a producer or a consumer gets.
	Message = 64 << 10
)

// Cut returns s, if it has at most limit bytes; otherwise its beginning, of at most limit bytes,
// and a mark with its length:
//
//	the beginning... (60000000 bytes)
func Cut(s string, limit int) string { return Shortened(s, len(s), limit) }

// Shortened is Cut of a text of size bytes, of which s is the beginning: all of it, or more
// than limit bytes.
func Shortened(s string, size, limit int) string {
	if size <= limit {
		return s
	}
	return head(s, limit) + mark(size)
}

// Within is Shortened with a result of at most limit bytes, the mark included. s may be longer than
// the text, if bytes of it were replaced.
func Within(s string, size, limit int) string {
	if size <= limit && len(s) <= limit {
		return s
	}
	m := mark(size)
	return head(s, limit-len(m)) + m
}

// Quote quotes the beginning of s, so that odd bytes can be read. The mark follows the quotes.
func Quote(s string) string {
	q := strconv.Quote(head(s, Input))
	if len(s) > Input {
		q += mark(len(s))
	}
	return q
}

func mark(size int) string { return fmt.Sprintf("... (%d bytes)", size) }

// head returns the first limit bytes of s, or up to three fewer: it ends with a character.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for end := limit; end > limit-utf8.UTFMax && end > 0; end-- {
		if utf8.RuneStart(s[end]) {
			return s[:end]
		}
	}
	return s[:max(limit, 0)] // not UTF-8
}
