package cdevice

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Bitmap is a bit for each element of an [ArrayView]: whether it is valid, or its boolean. It is valid as long as
// the view is.
type Bitmap struct {
	bytes          []byte // nil if all bits are the same
	offset, length int
	all            bool
}

// Len returns the number of bits.
func (b *Bitmap) Len() int { return b.length }

// At returns bit i. It panics if i is out of range, as indexing a slice does.
func (b *Bitmap) At(i int) bool {
	if uint(i) >= uint(b.length) {
		panic(errBitRange)
	}
	if b.bytes == nil {
		return b.all
	}
	i += b.offset
	return b.bytes[i>>3]>>(i&7)&1 != 0
}

var errBitRange = errors.New("cdevice: index of a Bitmap is out of range")

// Count returns how many bits are set.
func (b *Bitmap) Count() int {
	switch {
	case b.bytes != nil:
		return bitutil.CountSetBits(b.bytes, b.offset, b.length)
	case b.all:
		return b.length
	}
	return 0
}

// Bytes returns the memory of the bits, and the index in it of bit 0; nil where an array has no bitmap, so that all bits
// are the same.
func (b *Bitmap) Bytes() (bytes []byte, offset int) { return b.bytes, b.offset }

// set makes b the bits of the elements of a node in the bitmap at addr.
func (b *Bitmap) set(addr uintptr, n *tree.Node) {
	b.bytes = abi.Slice[byte](addr, int(layout.BitBytes(n.Offset+n.Length)))
	b.offset, b.length = int(n.Offset), int(n.Length)
}
