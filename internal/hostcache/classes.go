package hostcache

import (
	"errors"
	"math/bits"
)

// Size classes: powers of two up to largestSmall, then four to each doubling, so
// that no more than a fifth of a large block is wasted. Small blocks are cut from
// slabs, large ones are allocations of their own.
const (
	smallestShift = 6  // 64 bytes, the alignment that Arrow asks for
	smallShift    = 20 // 1 MiB
	largestShift  = 46 // more than a process can have
	perDoubling   = 4

	largestSmall = int64(1) << smallShift
	slabSize     = 4 * largestSmall
	smallClasses = smallShift - smallestShift + 1
	classes      = smallClasses + (largestShift-smallShift)*perDoubling
)

var errImpossible = errors.New("no such size")

func classOf(size int) (int, error) {
	if size < 0 || int64(size) > 1<<largestShift {
		return 0, errImpossible
	}
	if int64(size) <= largestSmall {
		return max(bits.Len64(uint64(size-1)), smallestShift) - smallestShift, nil
	}
	shift := bits.Len64(uint64(size-1)) - 1 // 2^shift < size <= 2^(shift+1)
	step := int64(1) << shift / perDoubling
	steps := (int64(size) - 1<<shift + step - 1) / step // 1 to 4
	return smallClasses + (shift-smallShift)*perDoubling + int(steps) - 1, nil
}

func sizeOf(class int) int64 {
	if class < smallClasses {
		return 1 << (class + smallestShift)
	}
	class -= smallClasses
	base := int64(1) << (smallShift + class/perDoubling)
	return base + base/perDoubling*int64(class%perDoubling+1)
}
