package hostread

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// CheckOffsets checks n+1 offsets into limit elements: that they are in order and within the limit.
func CheckOffsets[T OffsetInt](p *Pace, offsets []T, limit int64) error {
	if offsets[0] < 0 {
		return fielderr.Invalid(p.Op, "offsets[0]", offsets[0], "at least 0")
	}
	last := len(offsets) - 1
	err := p.Parts(last, func(from, to int) error {
		if ascending(offsets[from : to+1]) {
			return nil
		}
		for i := from + 1; i <= to; i++ {
			if offsets[i] < offsets[i-1] {
				return fielderr.Invalid(p.Op, fmt.Sprintf("offsets[%d]", i), offsets[i], fmt.Sprintf("at least %d, the offset before it", offsets[i-1]))
			}
		}
		return nil
	})
	if err == nil && int64(offsets[last]) > limit {
		err = fielderr.Invalid(p.Op, fmt.Sprintf("offsets[%d]", last), offsets[last], fmt.Sprintf("at most %d", limit))
	}
	return err
}

// ascending reports whether offsets are at least 0 and in order. The difference of two that are not
// negative does not overflow, so its sign is right, or that of an offset is set.
func ascending[T OffsetInt](offsets []T) bool {
	before, signs, others := T(0), T(0), T(0)
	for ; len(offsets) >= 4; offsets = offsets[4:] {
		four := (*[4]T)(offsets)
		a, b, c, d := four[0], four[1], four[2], four[3]
		signs |= a | b | (a - before) | (b - a)
		others |= c | d | (c - b) | (d - c)
		before = d
	}
	for _, offset := range offsets {
		signs |= offset | (offset - before)
		before = offset
	}
	return signs|others >= 0
}
