package cdevice

import (
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
)

// maxBufferSize is more than any process can address.
const maxBufferSize = 1 << 47

// viewSize is the size of one view of a binary_view or utf8_view array.
const viewSize = 16

// leastSize is how many bytes buffer i must have for end = offset+length
// elements, as far as the struct alone tells: for the bytes of a binary array,
// whose size only the offsets know, that is zero. The index counts as in the C
// data interface. A size beyond int64 comes back as MaxInt64.
func leastSize(st arrow.DataType, l *layout, i int, end int64) int64 {
	if l.validity && i == 0 {
		return bitBytes(end)
	}
	switch l.store {
	case storeBits:
		return bitBytes(end)
	case storeFixed, storeDictionary:
		return times(end, byteWidth(st))
	case storeBinary32, storeList32:
		if i == 1 {
			return times(plusOne(end), 4)
		}
	case storeBinary64, storeList64:
		if i == 1 {
			return times(plusOne(end), 8)
		}
	case storeView:
		if i == 1 {
			return times(end, viewSize)
		}
	case storeListView:
		return times(end, 4)
	case storeListView8:
		return times(end, 8)
	case storeSparse:
		return end
	case storeDense:
		if i == 0 {
			return end
		}
		return times(end, 4)
	}
	return 0
}

// childLength is how long the children must be for a parent that uses end =
// offset+length of its own elements, as far as the struct alone tells. It
// returns false when no length is enough.
func childLength(st arrow.DataType, end int64) (least int64, ok bool) {
	switch t := st.(type) {
	case *arrow.StructType, *arrow.SparseUnionType:
		return end, true
	case *arrow.FixedSizeListType:
		n := int64(t.Len())
		return end * n, n == 0 || end <= math.MaxInt64/n
	}
	return 0, true
}

func bitBytes(n int64) int64 { return n/8 + (n%8+7)/8 }

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
