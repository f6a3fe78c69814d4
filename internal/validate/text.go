package validate

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/arrowdevice/arrowdevice/internal/hostread"
)

// Checks of UTF-8 over the bytes of many values at once. They are sufficient, not necessary: bytes
// under a null may be anything. Where one of them fails, the values are checked one by one, which
// finds the value for the error, or accepts them.
//
// The contents are read more than once, first in large pieces and then at the ends of the values. A
// producer that writes to an array that it has exported can make the result wrong. It cannot lead a
// read out of a buffer: each index is checked against the slice that it is used on.

const highBits = 0x8080808080808080

// asciiLen returns how many bytes at the front of s are surely ASCII; all of them if it returns
// len(s).
func asciiLen(s []byte) int {
	i := 0
	for ; len(s)-i >= 64; i += 64 {
		b := (*[64]byte)(s[i:])
		if (word(b[0:8])|word(b[8:16])|word(b[16:24])|word(b[24:32])|
			word(b[32:40])|word(b[40:48])|word(b[48:56])|word(b[56:64]))&highBits != 0 {
			return i
		}
	}
	for ; len(s)-i >= 8; i += 8 {
		if word(s[i:i+8])&highBits != 0 {
			return i
		}
	}
	for ; i < len(s) && s[i] < utf8.RuneSelf; i++ {
	}
	return i
}

// word returns 8 bytes, the first one in the lowest bits.
func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// text reports whether s as a whole is UTF-8, and how many bytes at its front are surely ASCII.
func (v *validator) text(s []byte) (ascii int, ok bool, err error) {
	const piece = 1 << 18
	for ascii < len(s) {
		part := s[ascii:min(ascii+piece, len(s))]
		n := asciiLen(part)
		ascii += n
		if n < len(part) {
			break
		}
		if err := v.Spend(n); err != nil {
			return ascii, false, err
		}
	}
	if ascii == len(s) {
		return ascii, true, nil
	}
	for rest := s[ascii:]; len(rest) > 0; {
		part := rest
		if len(part) > piece+utf8.UTFMax {
			end, found := hostread.FirstStart(rest, piece)
			if !found {
				return ascii, false, nil
			}
			part = rest[:end]
		}
		if !validText(part) {
			return ascii, false, nil
		}
		if err := v.Spend(len(part)); err != nil {
			return ascii, false, err
		}
		rest = rest[len(part):]
	}
	return ascii, true, nil
}

// validText is utf8.Valid for text that is neither all ASCII nor without any: it goes from one
// character beyond ASCII to the next by words.
func validText(s []byte) bool {
	i := 0
	for {
		for len(s)-i >= 8 {
			high := word(s[i:i+8]) & highBits
			if high != 0 {
				i += bits.TrailingZeros64(high) / 8
				break
			}
			i += 8
		}
		if len(s)-i < 8 {
			return utf8.Valid(s[i:])
		}
		for len(s)-i >= 4 && s[i] >= utf8.RuneSelf {
			n := character(binary.LittleEndian.Uint32(s[i:]))
			if n == 0 {
				return false
			}
			i += n
		}
	}
}

// character returns the size of the UTF-8 character of two bytes or more that 4 bytes begin with,
// the first byte in the lowest bits, or 0 if there is none.
func character(x uint32) int {
	switch {
	case x&0xc0e0 == 0x80c0:
		if x&0x1e != 0 { // else it could be one byte
			return 2
		}
	case x&0xc0c0f0 == 0x8080e0:
		if y := x & 0x200f; y != 0 && y != 0x200d { // else it could be two bytes, or is a surrogate
			return 3
		}
	case x&0xc0c0c0f8 == 0x808080f0:
		lead, next := x&7, x&0x3000
		if lead != 0 && lead < 4 || lead == 0 && next != 0 || lead == 4 && next == 0 { // else it could be three, or is beyond the last
			return 4
		}
	}
	return 0
}

// textRows reports whether all rows between n+1 offsets, which were checked, are UTF-8.
func textRows[T hostread.OffsetInt](v *validator, data []byte, offsets []T) (ok bool, err error) {
	last := len(offsets) - 1
	first, end := offsets[0], offsets[last]
	data = data[first:end]
	ascii, ok, err := v.text(data)
	if err != nil || !ok || ascii == len(data) {
		return ok, err
	}
	// The bytes at the end belong to no character that a row could cut.
	for last > 0 && offsets[last-1] == end {
		last--
	}
	for _, offset := range offsets[:last] {
		if !utf8.RuneStart(data[offset-first]) {
			return false, nil
		}
	}
	return true, nil
}
