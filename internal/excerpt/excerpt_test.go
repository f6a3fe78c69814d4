package excerpt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

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
		if got := excerpt.Cut(c.s, 6); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWithinKeepsTheLimit(t *testing.T) {
	for _, s := range []string{"", "ä", strings.Repeat("ä", 50), strings.Repeat("ä", 51), strings.Repeat("😀", 1<<20), strings.Repeat("\xff", 200)} {
		got := excerpt.Within(s, len(s), 100)
		if len(got) > 100 || utf8.ValidString(s) != utf8.ValidString(got) {
			t.Errorf("%d bytes: %q", len(s), got)
		}
		if (got == s) != (len(s) <= 100) {
			t.Errorf("%d bytes, which are cut: %t", len(s), got != s)
		}
	}
}

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"a\x00b\xff":             `"a\x00b\xff"`,
		"":                       `""`,
		strings.Repeat("x", 100): `"` + strings.Repeat("x", 100) + `"`,
		strings.Repeat("x", 101): `"` + strings.Repeat("x", 100) + `"... (101 bytes)`,
	} {
		if got := excerpt.Quote(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
	if got := excerpt.Quote(strings.Repeat("\x01", 60e6)); len(got) > 450 {
		t.Errorf("a text of %d bytes", len(got))
	}
}
