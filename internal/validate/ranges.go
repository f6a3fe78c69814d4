package validate

import "github.com/arrowdevice/arrowdevice/internal/hostread"

// Checks of many sizes and indices at once, in loops that end nowhere in the middle. Where
// one of them fails, its caller finds the element for the error.

// within reports whether all lists lie within limit elements. No difference overflows unless a sign is set before it.
func within[T hostread.OffsetInt](offsets, sizes []T, limit int64) bool {
	signs := int64(0)
	sizes = sizes[:len(offsets)]
	for i, offset := range offsets {
		size, rest := int64(sizes[i]), limit-int64(offset)
		signs |= int64(offset) | size | rest | (rest - size)
	}
	return signs >= 0
}

// largest returns the largest of the indices.
func largest[T uint8 | uint16 | uint32 | uint64](indices []T) T {
	var a, b, c, d T
	for ; len(indices) >= 4; indices = indices[4:] {
		four := (*[4]T)(indices)
		a, b, c, d = max(a, four[0]), max(b, four[1]), max(c, four[2]), max(d, four[3])
	}
	for _, index := range indices {
		a = max(a, index)
	}
	return max(a, b, c, d)
}
