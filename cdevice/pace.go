package cdevice

import (
	"context"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// pace looks at a context in the middle of long work on memory, each time that about a
// millisecond of it is done. Without a context, the work is not ended.
type pace struct {
	ctx  context.Context
	op   string // of the error
	left int    // work until the next look
}

const (
	// atOnce is how many bytes or elements are worked on between two looks at the context.
	atOnce = 1 << 20
	// The work that a node is, in elements, and a question to a driver.
	nodeWork, lookupWork = 100, 5000
)

// spend accounts for work on n bytes or elements. It returns an error once the context is done.
func (p *pace) spend(n int) error {
	if p == nil || p.ctx == nil {
		return nil
	}
	if p.left -= n; p.left > 0 {
		return nil
	}
	p.left = atOnce
	return fielderr.ContextError(p.ctx, p.op)
}

// parts calls do for the parts of n elements, one after the other.
func (p *pace) parts(n int, do func(from, to int) error) error {
	const part = 1 << 16
	for from := 0; from < n; from += part {
		to := min(from+part, n)
		if err := p.spend(to - from); err != nil {
			return err
		}
		if err := do(from, to); err != nil {
			return err
		}
	}
	return nil
}

// countNulls is hostNulls, which the context ends.
func (p *pace) countNulls(n *tree.Node) (int64, error) {
	addr := n.Validity()
	if n.Nulls != tree.UnknownNulls || addr == 0 || n.Length == 0 {
		return hostNulls(n), nil
	}
	bitmap, nulls := bitmapBytes(addr, n), n.Length
	for from := int64(0); from < n.Length; {
		count := min(n.Length-from, 8*atOnce)
		nulls -= int64(bitutil.CountSetBits(bitmap, int(n.Offset+from), int(count)))
		from += count
		if err := p.spend(int(count / 8)); err != nil {
			return 0, err
		}
	}
	return nulls, nil
}

// validUTF8 is utf8.Valid.
func (p *pace) validUTF8(s []byte) (bool, error) {
	for len(s) > atOnce+utf8.UTFMax {
		end, ok := firstStart(s, atOnce)
		if !ok || !utf8.Valid(s[:end]) {
			return false, nil
		}
		s = s[end:]
		if err := p.spend(end); err != nil {
			return false, err
		}
	}
	return utf8.Valid(s), p.spend(len(s))
}

// firstStart returns where the first character at or after position i begins. It reports false
// if none of four bytes begins one: then s is not UTF-8.
func firstStart(s []byte, i int) (int, bool) {
	for end := i + utf8.UTFMax; i < end; i++ {
		if utf8.RuneStart(s[i]) {
			return i, true
		}
	}
	return i, false
}
