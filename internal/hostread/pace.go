package hostread

import (
	"context"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Pace checks a context about every millisecond during long work on memory. Without a context, it
// never ends the work.
type Pace struct {
	Ctx  context.Context
	Op   string // of the error
	left int    // work until the next check
}

const (
	// atOnce is the number of bytes or elements between two checks of the context.
	atOnce = 1 << 20
	// NodeWork and LookupWork are the costs of a node and of a query to a driver, in elements.
	NodeWork, LookupWork = 100, 5000
)

// Spend accounts for work on n bytes or elements. It returns an error once the context is done.
func (p *Pace) Spend(n int) error {
	if p == nil || p.Ctx == nil {
		return nil
	}
	if p.left -= n; p.left > 0 {
		return nil
	}
	p.left = atOnce
	return fielderr.ContextError(p.Ctx, p.Op)
}

// Parts calls do for the parts of n elements, one after the other.
func (p *Pace) Parts(n int, do func(from, to int) error) error {
	const part = 1 << 16
	for from := 0; from < n; from += part {
		to := min(from+part, n)
		if err := p.Spend(to - from); err != nil {
			return err
		}
		if err := do(from, to); err != nil {
			return err
		}
	}
	return nil
}

// Nulls is the function Nulls with checks of the context.
func (p *Pace) Nulls(n *tree.Node) (int64, error) {
	addr := n.Validity()
	if n.Nulls != tree.UnknownNulls || addr == 0 || n.Length == 0 {
		return Nulls(n), nil
	}
	bitmap, nulls := bitmapBytes(addr, n), n.Length
	for from := int64(0); from < n.Length; {
		count := min(n.Length-from, 8*atOnce)
		nulls -= int64(bitutil.CountSetBits(bitmap, int(n.Offset+from), int(count)))
		from += count
		if err := p.Spend(int(count / 8)); err != nil {
			return 0, err
		}
	}
	return nulls, nil
}

// ValidUTF8 is utf8.Valid with checks of the context.
func (p *Pace) ValidUTF8(s []byte) (bool, error) {
	for len(s) > atOnce+utf8.UTFMax {
		end, ok := FirstStart(s, atOnce)
		if !ok || !utf8.Valid(s[:end]) {
			return false, nil
		}
		s = s[end:]
		if err := p.Spend(end); err != nil {
			return false, err
		}
	}
	return utf8.Valid(s), p.Spend(len(s))
}

// FirstStart returns the position of the first character that begins at or after i. It reports
// false if none of the next four bytes begins one, since s is then not UTF-8.
func FirstStart(s []byte, i int) (int, bool) {
	for end := i + utf8.UTFMax; i < end; i++ {
		if utf8.RuneStart(s[i]) {
			return i, true
		}
	}
	return i, false
}
