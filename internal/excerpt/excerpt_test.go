package excerpt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

func TestCut(t *testing.T) {
	for _, c := range []struct{ name, s, want string }{
		{"short", "abc", "abc"},
		{"exact", "abcdef", "abcdef"},
		{"long", "abcdefg", "abcdef... (7 bytes)"},
		{"inside a character of two", "abcdeäg", "abcde... (8 bytes)"},
		{"inside a character of four", "abc😀😀", "abc... (11 bytes)"},
		{"behind a character", "abcdäef", "abcdä... (8 bytes)"},
		{"not UTF-8", strings.Repeat("\x80", 9), strings.Repeat("\x80", 6) + "... (9 bytes)"},
	} {
		assert.Equal(t, c.want, excerpt.Cut(c.s, 6), c.name)
	}
}

func TestWithinKeepsTheLimit(t *testing.T) {
	for _, s := range []string{"", "ä", strings.Repeat("ä", 50), strings.Repeat("ä", 51), strings.Repeat("😀", 1<<20), strings.Repeat("\xff", 200)} {
		got := excerpt.Within(s, len(s), 100)
		assert.LessOrEqual(t, len(got), 100)
		assert.Equal(t, utf8.ValidString(s), utf8.ValidString(got), got)
		assert.Equal(t, len(s) <= 100, got == s, got)
	}
}

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"a\x00b\xff":             `"a\x00b\xff"`,
		"":                       `""`,
		strings.Repeat("x", 100): `"` + strings.Repeat("x", 100) + `"`,
		strings.Repeat("x", 101): `"` + strings.Repeat("x", 100) + `"... (101 bytes)`,
	} {
		assert.Equal(t, want, excerpt.Quote(s))
	}
	assert.LessOrEqual(t, len(excerpt.Quote(strings.Repeat("\x01", 60e6))), 450)
}
