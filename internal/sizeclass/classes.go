package sizeclass

import (
	"errors"
	"math/bits"
)

// Size classes: powers of two up to largestSmall, then sixteen to each doubling, so
// that no more than a sixteenth of a large block is wasted. Small blocks are cut from
// slabs, large ones are allocations of their own.
const (
	smallestShift = 6  // 64 bytes, the alignment that Arrow asks for
	smallShift    = 20 // 1 MiB
	largestShift  = 46 // more than a process can have
	perDoubling   = 16

	largestSmall = int64(1) << smallShift
	smallClasses = smallShift - smallestShift + 1
	classes      = smallClasses + (largestShift-smallShift)*perDoubling
)

// tiers are the sizes of slabs: small enough to waste little memory, large enough that the source
// is called rarely.
var tiers = [...]struct{ block, slab int64 }{
	{4 << 10, smallestSlab},
	{64 << 10, 1 << 20},
	{largestSmall, 4 * largestSmall},
}

const smallestSlab = 64 << 10

// alignment is that of blocks of as many bytes: what a driver aligns its memory to. Smaller blocks are aligned to their size.
const alignment = 256

// MaxSize is the most that a block can have.
const MaxSize = int64(1) << largestShift

var errImpossible = errors.New("no such size")

// classOf returns the smallest class whose blocks have size bytes.
func classOf(size int64) (int, error) {
	if size <= 0 || size > 1<<largestShift {
		return 0, errImpossible
	}
	if size <= largestSmall {
		return max(bits.Len64(uint64(size-1)), smallestShift) - smallestShift, nil
	}
	shift := bits.Len64(uint64(size-1)) - 1 // 2^shift < size <= 2^(shift+1)
	step := int64(1) << shift / perDoubling
	steps := (size - 1<<shift + step - 1) / step // 1 to perDoubling
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

// tierOf returns the tier of the slabs that small blocks are cut from.
func tierOf(class int) int {
	tier := 0
	for sizeOf(class) > tiers[tier].block {
		tier++
	}
	return tier
}

// slabSize returns how much to ask the source for to get a block of this class: most
// bytes, unless the block alone is larger.
func slabSize(class int, most int64) int64 {
	block := sizeOf(class)
	if class >= smallClasses {
		return block
	}
	slab := tiers[tierOf(class)].slab
	for slab > block && slab > most {
		slab /= 2 // a class, too
	}
	return slab
}
