package dlpack

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// walker goes down the arrays of an export, from the lists to the elements.
type walker struct {
	readable bool // bitmaps can be read
	noNulls  bool // WithoutNulls
}

// place sets the tensor's data: the address of the first element. An error names an array with nulls, or whose elements are not aligned.
func (w walker) place(a *abi.ArrowArray, inner []int64, t *Tensor) error {
	first, count := int64(0), a.Length // of the elements of a that the tensor has
	for depth, n := range inner {
		if err := w.checkNulls(a, first, count, depth); err != nil {
			return err
		}
		first, count = (a.Offset+first)*n, count*n
		a = *abi.At[*abi.ArrowArray](a.Children)
	}
	if err := w.checkNulls(a, first, count, len(inner)); err != nil {
		return err
	}
	if count == 0 {
		return nil // without elements, data is NULL
	}
	values, size := abi.Slice[uintptr](a.Buffers, 2)[1], int64(t.DType.Bits/8)
	skip := (a.Offset + first) * size
	if !hasAddresses(device.Type(t.Device.Type)) {
		t.Data, t.ByteOffset = values, uint64(skip)
		return nil
	}
	t.Data = values + uintptr(skip) // some consumers ignore byte_offset
	if err := fielderr.CheckAligned(opExport, "Buffers[1]", values, size, "CopyTo makes a copy that is aligned"); err != nil {
		return fielderr.Within(path(len(inner)), err)
	}
	return nil
}

// hasAddresses reports whether buffers of a type of device are addresses, which can be added to. Those
// of other types may be handles.
func hasAddresses(t device.Type) bool {
	switch t {
	case device.CPU, device.CUDA, device.CUDAHost, device.CUDAManaged, device.ROCM, device.ROCMHost, device.OneAPI:
		return true
	}
	return false
}

// checkNulls returns an error unless count elements from first on are known not to be null. depth is
// the number of lists around them.
func (w walker) checkNulls(a *abi.ArrowArray, first, count int64, depth int) error {
	validity := abi.Slice[uintptr](a.Buffers, 1)[0]
	if validity == 0 || a.NullCount == 0 || count == 0 {
		return nil
	}
	nulls := a.NullCount
	if first != 0 || count != a.Length {
		nulls = -1 // they may be elsewhere
	}
	if nulls < 0 {
		if w.noNulls {
			return nil
		}
		if !w.readable {
			return fielderr.Invalid(opExport, nullCount(depth), "unknown", "0: count them (CountNulls) and pass WithoutNulls")
		}
		at := a.Offset + first
		gone := memcopy.Guard(func() error {
			bitmap := abi.Slice[byte](validity, int((at+count+7)/8))
			nulls = count - int64(bitutil.CountSetBits(bitmap, int(at), int(count)))
			return nil
		})
		if gone != nil {
			return fielderr.New(opExport, nullCount(depth), "unknown", nil, gone)
		}
	}
	if nulls == 0 {
		return nil
	}
	return fielderr.New(opExport, nullCount(depth), nulls, "0: a tensor has no nulls", fmt.Errorf("fill or drop them first: %w", arrow.ErrInvalid))
}

// nullCount returns the path of a null count for an error.
func nullCount(depth int) string { return path(depth) + ".NullCount" }

// path returns the path of the array in so many lists for an error.
func path(depth int) string { return "Array" + strings.Repeat(".children[0]", depth) }
