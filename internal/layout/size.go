package layout

import (
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
)

// MaxBufferSize is more than any process can address.
const MaxBufferSize = 1 << 47

// ViewSize is the size of one view of a binary_view or utf8_view array.
const ViewSize = 16

// LeastSize returns the minimum size in bytes of buffer i for end = offset+length elements that
// follows from the struct alone: zero for the bytes of a binary array, whose size the offsets
// determine. The index is that of the C data interface. A size beyond int64 is returned as
// MaxInt64.
func LeastSize(st arrow.DataType, l *Layout, i int, end int64) int64 {
	if l.Validity && i == 0 {
		return BitBytes(end)
	}
	switch l.Kind {
	case Bits:
		return BitBytes(end)
	case Fixed, Dictionary:
		return times(end, ByteWidth(st))
	case Binary32, List32:
		if i == 1 {
			return times(plusOne(end), 4)
		}
	case Binary64, List64:
		if i == 1 {
			return times(plusOne(end), 8)
		}
	case View:
		if i == 1 {
			return times(end, ViewSize)
		}
	case ListView32:
		return times(end, 4)
	case ListView64:
		return times(end, 8)
	case Sparse:
		return end
	case Dense:
		if i == 0 {
			return end
		}
		return times(end, 4)
	}
	return 0
}

// ChildLength returns the minimum length of the children of a parent with end = offset+length
// elements that follows from the struct alone. It returns false if no length is enough.
func ChildLength(st arrow.DataType, end int64) (least int64, ok bool) {
	switch t := st.(type) {
	case *arrow.StructType, *arrow.SparseUnionType:
		return end, true
	case *arrow.FixedSizeListType:
		n := int64(t.Len())
		return end * n, n == 0 || end <= math.MaxInt64/n
	}
	return 0, true
}

// BitBytes returns the number of bytes of n bits, without overflow.
func BitBytes(n int64) int64 { return n/8 + (n%8+7)/8 }

func plusOne(n int64) int64 {
	if n == math.MaxInt64 {
		return n
	}
	return n + 1
}

// times multiplies two counts; a result beyond int64 is MaxInt64.
func times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
