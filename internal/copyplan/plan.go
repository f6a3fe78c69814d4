// Package copyplan copies trees: it plans which parts of the buffers the elements need, lays them
// out in one allocation, and copies them to CPU memory, to a device, or in the layout that libcudf
// needs.
package copyplan

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// Plan is a copy plan: the description of a copy of a tree at offset zero, with only the bytes that
// its elements need.
type Plan struct {
	dtype  arrow.DataType
	Layout *layout.Layout
	Length int64
	nulls  int64 // or UnknownNulls
	// Parts are the buffers of the C data interface, without the sizes of views. A buffer that is
	// not needed has no bytes.
	Parts    []part
	Children []Plan
}

// isNoBitmap reports whether part k, if it has no bytes, is a validity bitmap that is left out: its address is NULL.
func (t *Plan) isNoBitmap(k int) bool { return t.Layout.Validity && k == 0 }

// part is one buffer of a plan: bytes made for it in CPU memory, or bytes of the source to be
// copied unchanged.
type part struct {
	Made  []byte  // nil if bytes of the source are copied
	Addr  uintptr // address of the bytes to copy, on the source's device
	Size  int64
	whole bool // a buffer of a copy of this package from its beginning to its end: zeros are around it
}

func madeOf(b []byte) part { return part{Made: b, Size: int64(len(b))} }

func taken(addr uintptr, size int64) part {
	if size == 0 {
		return part{} // even if there is an address
	}
	return part{Addr: addr, Size: size}
}

// makePart makes a buffer of count values, which are zero.
func makePart[T any](count int64) ([]T, part) {
	var zero T
	values := make([]T, count, max(count, 1)) // an empty one needs an address too
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), count*int64(unsafe.Sizeof(zero)))
	return values, madeOf(b)
}

// evenOffsets returns the offsets of lists that all have the same number of elements.
func evenOffsets(length, width int64) part {
	offsets, p := makePart[int32](length + 1)
	for i := range offsets {
		offsets[i] = int32(int64(i) * width)
	}
	return p
}

// span is the smallest range that covers the ranges added to it.
type span struct{ first, last int64 }

func (s *span) add(i, j int64) {
	if s.first == s.last {
		s.first, s.last = i, j
		return
	}
	s.first, s.last = min(s.first, i), max(s.last, j)
}
