package validate

import (
	"bytes"
	"context"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every sequence of up to 4 bytes at the bounds of what UTF-8 allows, at each place of a word.
func TestValidTextOfEveryCharacter(t *testing.T) {
	part := 1
	if testing.Short() {
		part = 17
	}
	i := 0
	bounds := []byte{0, 'x', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xff}
	for _, a := range bounds {
		for _, b := range bounds {
			for _, c := range bounds {
				for _, d := range bounds {
					if i++; i%part != 0 {
						continue
					}
					char := []byte{a, b, c, d}
					for before := range 9 {
						for _, behind := range []int{0, 3, 8} {
							text := append(bytes.Repeat([]byte{'x'}, before), char...)
							text = append(text, bytes.Repeat([]byte{'y'}, behind)...)
							want := utf8.Valid(text)
							if got := validText(text); got != want {
								t.Fatalf("%x: %v, want %v", text, got, want)
							}
							var inline [16]byte
							if copy(inline[:12], text) < len(text) {
								continue
							}
							if got := inlineText(word(inline[:8]), word(inline[8:])); got != want {
								t.Fatalf("%x in a view: %v, want %v", text, got, want)
							}
						}
					}
				}
			}
		}
	}
}

func TestASCIILenFindsEachByte(t *testing.T) {
	for size := range 200 {
		text := bytes.Repeat([]byte{0x7f}, size)
		require.Equal(t, size, asciiLen(text))
		for i := range text {
			text[i] = 0x80
			n := asciiLen(text)
			require.LessOrEqual(t, n, i, "a byte that is not ASCII, at %d of %d", i, size)
			require.Greater(t, n, i-64)
			text[i] = 0x7f
		}
	}
}

// Characters are not cut where long text is checked in pieces.
func TestLongTextInPieces(t *testing.T) {
	v := newValidator(context.Background())
	for _, char := range []string{"ä", "€", "😀"} {
		for shift := range 5 {
			text := append(bytes.Repeat([]byte{'x'}, shift), bytes.Repeat([]byte(char), 1<<20/len(char))...)
			_, ok, err := v.text(text)
			require.NoError(t, err)
			assert.True(t, ok)
			for _, at := range []int{shift, 1 << 18, 1<<18 - 1, 1<<18 + 3 + shift, 1 << 19, len(text) - 1} {
				before := text[at]
				text[at] = 0xff
				_, ok, err = v.text(text)
				require.NoError(t, err)
				assert.False(t, ok, "%q, byte %d", char, at)
				text[at] = before
			}
		}
	}
}

func FuzzValidText(f *testing.F) {
	f.Add([]byte("plain text of some length, grün and 😀 and € more"))
	f.Add([]byte("\xed\xa0\x80 a surrogate, \xc0\xaf an overlong one"))
	f.Fuzz(func(t *testing.T, text []byte) {
		assert.Equal(t, utf8.Valid(text), validText(text), "%x", text)
		assert.True(t, utf8.Valid(text[:asciiLen(text)]), "%x", text)
	})
}
