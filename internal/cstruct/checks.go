package cstruct

import (
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Checks of the C structs themselves, on every device, before their contents are used. Buffers are
// not read, except the sizes of views.

// CheckTop checks that there is a struct that is not released.
func CheckTop(in *Input) error {
	if in.Array == nil {
		return fielderr.Invalid(fielderr.OpImport, in.Names.Name, "NULL", "a struct")
	}
	if in.Array.Release == 0 {
		return fielderr.NoRelease(fielderr.OpImport, in.Names.root(0)+".release")
	}
	return nil
}

// checkDevice checks the members that ArrowDeviceArray adds to ArrowArray. A positive type that
// this package does not know is accepted and passed on.
func checkDevice(of device.ID, event uintptr) error {
	id := of.Ordinal
	switch t := of.Type; t {
	case device.CPU:
		if id != device.NoOrdinal && id != 0 {
			return fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_id", id, "-1 for cpu")
		}
	case device.CUDA, device.CUDAManaged, device.CUDAHost:
		least := int64(0)
		if t == device.CUDAHost {
			least = device.NoOrdinal // pinned memory belongs to every device; Arrow C++ numbers it so
		}
		if id < least || id > math.MaxInt32 {
			return fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_id", id, fmt.Sprintf("a device ordinal for %s", t))
		}
		if event != 0 {
			return checkPointer("ArrowDeviceArray.sync_event", event, "the address of a CUevent")
		}
	default:
		if t <= 0 {
			return fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_type", int32(t), "a positive ArrowDeviceType; if it is an ArrowArray, ArrayFromPtr")
		}
	}
	return nil
}

// checkPointer returns an error about the address of pointers, of a struct, or of the sizes of a view array, which an import reads
// where they are. It may read other memory, of any alignment, at no time or by bytes.
func checkPointer(field string, addr uintptr, want string) error {
	switch {
	case isPointer(addr):
		return nil
	case addr != 0:
		want += fmt.Sprintf(", with an alignment of %d", sizeofPointer)
	}
	return fielderr.Invalid(fielderr.OpImport, field, fielderr.Hex(addr), want)
}

// isPointer reports whether an address can be that of pointers, structs or sizes.
func isPointer(addr uintptr) bool { return addr != 0 && addr%sizeofPointer == 0 }

// checkEvent refuses an event of memory of the CPU, for which the specification defines none. A
// tree without buffers needs no event: Arrow C++ exports one of any device as the CPU's, and leaves
// the event in it.
func checkEvent(in *Input, nodes []tree.Node) error {
	if in.ID.Type != device.CPU || in.Event == 0 || !hasBuffers(nodes) {
		return nil
	}
	return fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.sync_event", fielderr.Hex(in.Event), "NULL for cpu")
}

// hasBuffers reports whether an array with elements has a buffer that is not NULL.
func hasBuffers(nodes []tree.Node) bool {
	return slices.ContainsFunc(nodes, func(n tree.Node) bool {
		return n.Length > 0 && slices.ContainsFunc(n.Buffers, func(addr uintptr) bool { return addr != 0 }) || hasBuffers(n.Children)
	})
}

// checkBatchRoot checks the struct array of a record batch. Only its columns are imported, cut to its
// offset and length, so the struct must not have nulls.
func checkBatchRoot(in *Input, columns int) error {
	a := in.Array
	if err := checkRange(a); err != nil {
		return err
	}
	if a.NBuffers != 1 {
		return fielderr.Invalid(fielderr.OpImport, "n_buffers", a.NBuffers, "1 for a record batch")
	}
	if err := checkPointer("buffers", a.Buffers, "an array of 1 pointer"); err != nil {
		return err
	}
	bitmap := *abi.At[uintptr](a.Buffers)
	nulls := a.NullCount
	if nulls == tree.UnknownNulls && (bitmap == 0 || in.CountsNulls && allSet(bitmap, a.Offset, a.Length)) {
		nulls = 0
	}
	if nulls != 0 {
		return fielderr.Invalid(fielderr.OpImport, "null_count", a.NullCount, wantNoNulls(a, nulls, in))
	}
	if a.Dictionary != 0 {
		return fielderr.Invalid(fielderr.OpImport, "dictionary", fielderr.Hex(a.Dictionary), "NULL for a record batch")
	}
	return checkChildren(a, columns, "the fields of the schema")
}

// wantNoNulls says what an import of a record batch takes in place of nulls, and what imports them, if that is possible.
func wantNoNulls(a *abi.ArrowArray, nulls int64, in *Input) string {
	const want = "0 for a record batch"
	switch {
	case nulls == tree.UnknownNulls && !in.CountsNulls: // the bitmap may have no nulls, and an import reads no buffers
		return want + ": package cdata counts, and cdevice.ImportArray takes nulls"
	case countsFit(a):
		return want + ": cdevice.ImportArray takes nulls"
	}
	return want
}

// allSet reports whether a bitmap in memory of the CPU has no zero in a range.
func allSet(bitmap uintptr, offset, length int64) bool {
	bytes := abi.Slice[byte](bitmap, int((offset+length)/8+1))
	return bitutil.CountSetBits(bytes, int(offset), int(length)) == int(length)
}

func checkChildren(a *abi.ArrowArray, want int, what any) error {
	if a.NChildren != int64(want) {
		return fielderr.Invalid(fielderr.OpImport, "n_children", a.NChildren, fmt.Sprintf("%d for %s", want, fielderr.Describe(what)))
	}
	if want > 0 && !isPointer(a.Children) {
		return checkPointer("children", a.Children, fmt.Sprintf("an array of %d pointers", want))
	}
	return nil
}

// checkRuns checks the structs of a run-end encoded array.
func checkRuns(op string, n *tree.Node) error {
	ends, values := &n.Children[0], &n.Children[1]
	if ends.Nulls > 0 {
		return fielderr.Invalid(op, "children[0].null_count", ends.Nulls, "0 for run ends")
	}
	if n.Length > 0 && ends.Length == 0 {
		return fielderr.Invalid(op, "children[0].length", ends.Length, "at least 1")
	}
	if values.Length < ends.Length {
		return fielderr.Invalid(op, "children[1].length", values.Length, fmt.Sprintf("at least %d", ends.Length))
	}
	return nil
}

// checkRange checks that length and offset are not negative, and their sum is an int64.
func checkRange(a *abi.ArrowArray) error {
	if a.Length < 0 {
		return fielderr.Invalid(fielderr.OpImport, "length", a.Length, "at least 0")
	}
	if a.Offset < 0 || a.Offset > math.MaxInt64-a.Length {
		return fielderr.Invalid(fielderr.OpImport, "offset", a.Offset, fmt.Sprintf("0 to %d with length %d", math.MaxInt64-a.Length, a.Length))
	}
	return nil
}

func checkCounts(a *abi.ArrowArray, st arrow.DataType, l *layout.Layout) error {
	if err := checkRange(a); err != nil {
		return err
	}
	if a.NullCount < tree.UnknownNulls || a.NullCount > a.Length {
		return fielderr.Invalid(fielderr.OpImport, "null_count", a.NullCount, fmt.Sprintf("-1 to %d", a.Length))
	}
	if !buffersAllowed(a.NBuffers, l) {
		return fielderr.Invalid(fielderr.OpImport, "n_buffers", a.NBuffers, wantBuffers(l, st))
	}
	if a.NBuffers > 0 && !isPointer(a.Buffers) {
		return checkPointer("buffers", a.Buffers, fmt.Sprintf("an array of %d pointers", a.NBuffers))
	}
	return nil
}

// buffersAllowed reports whether an array of a layout may have n buffers. Arrays of null type have
// none, but polars exports one, for a bitmap, which Arrow C++ ignores too.
func buffersAllowed(n int64, l *layout.Layout) bool {
	switch l.Kind {
	case layout.View:
		return n >= int64(l.Buffers) && n <= math.MaxInt32
	case layout.Null:
		return n == 0 || n == 1
	}
	return n == int64(l.Buffers)
}

func wantBuffers(l *layout.Layout, st arrow.DataType) string {
	if l.Kind == layout.View {
		return fmt.Sprintf("at least %d for %s", l.Buffers, fielderr.Describe(st))
	}
	return fmt.Sprintf("%d for %s", l.Buffers, fielderr.Describe(st))
}

func bitmapOf(l *layout.Layout, buffers []uintptr) uintptr {
	if !l.Validity {
		return 0
	}
	return buffers[0]
}

// checkBuffers returns an error for a NULL buffer that must have data, and for one that offset and length make
// larger than memory can be: the sizes and addresses of all others can be computed without overflow. The bytes
// of binary arrays and of views may be NULL, since only the contents determine whether any are needed.
func checkBuffers(n *tree.Node, nullCount int64, st arrow.DataType, l *layout.Layout) error {
	if l.Validity && n.Buffers[0] == 0 && nullCount > 0 {
		return fielderr.Invalid(fielderr.OpImport, "buffers[0]", "NULL", fmt.Sprintf("a validity bitmap for null_count %d", nullCount))
	}
	end := n.Offset + n.Length
	if n.Length > 0 {
		for i := range l.Buffers {
			size := layout.LeastSize(st, l, i, end)
			if n.Buffers[i] == 0 && !(l.Validity && i == 0) && size > 0 {
				return fielderr.Invalid(fielderr.OpImport, fmt.Sprintf("buffers[%d]", i), "NULL", fmt.Sprintf("data for length %d", n.Length))
			}
			if n.Buffers[i] != 0 && size > layout.MaxBufferSize {
				return fielderr.Invalid(fielderr.OpImport, fmt.Sprintf("buffers[%d].length", i), size, fmt.Sprintf("at most %d", int64(layout.MaxBufferSize)))
			}
		}
	}
	if l.Kind == layout.View {
		return checkViewSizes(n.Buffers)
	}
	return nil
}

// checkViewSizes checks the sizes of the variadic buffers, which are in CPU memory on every device.
func checkViewSizes(buffers []uintptr) error {
	variadic := len(buffers) - 3
	if variadic == 0 {
		return nil
	}
	last := len(buffers) - 1
	if !isPointer(buffers[last]) {
		return checkPointer(fmt.Sprintf("buffers[%d]", last), buffers[last], fmt.Sprintf("the sizes of %d buffers", variadic))
	}
	for i, size := range abi.Slice[int64](buffers[last], variadic) {
		if size < 0 || size > layout.MaxBufferSize {
			return fielderr.Invalid(fielderr.OpImport, fmt.Sprintf("buffers[%d][%d]", last, i), size, fmt.Sprintf("0 to %d", int64(layout.MaxBufferSize)))
		}
		if size > 0 && buffers[2+i] == 0 {
			return fielderr.Invalid(fielderr.OpImport, fmt.Sprintf("buffers[%d]", 2+i), "NULL", fmt.Sprintf("%d bytes", size))
		}
	}
	return nil
}
