// Package hostread reads typed values of buffers in memory that the CPU can access: the sizes of
// buffers, offsets, views, bitmaps, run ends.
package hostread

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Sizes appends to sizes, which is empty, the size in bytes of each data buffer of a node in CPU
// memory, without the buffer that holds the sizes of a view array.
func Sizes(sizes []int64, n *tree.Node, st arrow.DataType) ([]int64, error) {
	l := n.Layout
	count := len(n.Buffers)
	if l.Kind == layout.View {
		count--
	}
	sizes = append(sizes, make([]int64, count)...)
	if n.Length == 0 {
		if l.Kind == layout.Binary32 || l.Kind == layout.Binary64 || l.Kind == layout.List32 || l.Kind == layout.List64 {
			sizes[1] = layout.LeastSize(st, l, 1, 0)
		}
		return sizes, nil
	}
	end := n.Offset + n.Length
	for i := range sizes {
		sizes[i] = layout.LeastSize(st, l, i, end)
	}
	switch l.Kind {
	case layout.Binary32:
		sizes[2] = int64(*abi.At[int32](n.Buffers[1] + uintptr(end)*4))
	case layout.Binary64:
		sizes[2] = *abi.At[int64](n.Buffers[1] + uintptr(end)*8)
	case layout.View:
		copy(sizes[2:], abi.Slice[int64](n.Buffers[count], count-2))
	default:
		return sizes, nil
	}
	for i, size := range sizes[2:] {
		if size < 0 || size > layout.MaxBufferSize {
			field := fmt.Sprintf("buffers[%d].length", i+2)
			if l.Kind != layout.View { // the last offset is the size
				field = fmt.Sprintf("offsets[%d]", n.Length)
			}
			return nil, fielderr.Invalid(fielderr.OpRead, field, size, fmt.Sprintf("0 to %d", int64(layout.MaxBufferSize)))
		}
		if size > 0 && tree.NoData(n.Buffers[i+2]) {
			return nil, fielderr.Invalid(fielderr.OpRead, fmt.Sprintf("buffers[%d]", i+2), "NULL", fmt.Sprintf("%d bytes", size))
		}
	}
	return sizes, nil
}

// CheckSizes returns the error that Sizes returns for the node. It returns sizes, which it may use.
func CheckSizes(sizes []int64, n *tree.Node) ([]int64, error) {
	if sizesFit(n) {
		return sizes, nil
	}
	return Sizes(sizes[:0], n, n.Storage())
}

// sizesFit reports whether Sizes returns no error for the node. It does so for most nodes; a false is
// no answer.
func sizesFit(n *tree.Node) bool {
	switch n.Layout.Kind {
	case layout.Bits, layout.Fixed:
		return true
	case layout.Binary32:
		return n.Length > 0 && bytesFit(n, int64(*abi.At[int32](n.Buffers[1] + uintptr(n.Offset+n.Length)*4)))
	}
	return false
}

// bytesFit reports whether the bytes of a binary array can have the size.
func bytesFit(n *tree.Node, size int64) bool {
	return size == 0 || size > 0 && !tree.NoData(n.Buffers[2])
}

// Values returns count values of buffer i, from the node's offset on.
func Values[T any](n *tree.Node, i int, count int64) []T {
	all := abi.Slice[T](n.Buffers[i], int(n.Offset+count))
	return all[n.Offset:]
}

func bitmapBytes(addr uintptr, n *tree.Node) []byte {
	return abi.Slice[byte](addr, int(layout.BitBytes(n.Offset+n.Length)))
}

// IsValid returns a function that reports whether element i of the node is valid.
func IsValid(n *tree.Node) func(i int) bool {
	addr := n.Validity()
	if addr == 0 {
		return func(int) bool { return true }
	}
	bitmap, offset := bitmapBytes(addr, n), int(n.Offset)
	return func(i int) bool { return bitutil.BitIsSet(bitmap, offset+i) }
}

// Nulls returns the null count. If it is not known, Nulls counts it in the bitmap.
func Nulls(n *tree.Node) int64 {
	if n.Nulls != tree.UnknownNulls {
		return n.Nulls
	}
	return CountNulls(n)
}

// CountNulls counts the nulls in the bitmap, also if there is a null count, which may be wrong.
func CountNulls(n *tree.Node) int64 {
	addr := n.Validity()
	if addr == 0 || n.Length == 0 {
		return 0
	}
	return n.Length - int64(bitutil.CountSetBits(bitmapBytes(addr, n), int(n.Offset), int(n.Length)))
}

// SetNulls counts the nulls of a node and of those below it, where the null counts are not known.
func SetNulls(n *tree.Node) {
	n.Nulls = Nulls(n)
	for i := range n.Children {
		SetNulls(&n.Children[i])
	}
}

// CountingDevice is the device for which package cdata wraps objects of arrow-go. Package cdevice wraps them for the
// device in it, and sets the null counts that are not known, as an export of arrow-go's package does.
type CountingDevice struct{ device.Device }

// OffsetInt is the type of an offset.
type OffsetInt interface{ int32 | int64 }

// RunEnd returns run end i of the run ends array.
func RunEnd(ends *tree.Node, i int64) int64 {
	at := uintptr(ends.Offset + i)
	switch layout.ByteWidth(layout.StorageType(ends.Type)) {
	case 2:
		return int64(*abi.At[int16](ends.Buffers[1] + at*2))
	case 4:
		return int64(*abi.At[int32](ends.Buffers[1] + at*4))
	}
	return *abi.At[int64](ends.Buffers[1] + at*8)
}
