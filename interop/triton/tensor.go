package triton

import (
	"context"
	"math"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A Tensor is a column in a region, as an input or output of a model.
type Tensor struct {
	Name     string  // of the column, and of the model's input or output
	Datatype string  // Triton's: "FP32"
	Shape    []int64 // the rows, then the lengths of fixed-size lists, unless WithShape gives another one
	Offset   int64   // of the first element in the region, in bytes
	ByteSize int64   // of all elements; of an output of BYTES, the room for them
}

// size returns the bytes of a tensor, or false if no memory could have them.
func size(width int64, shape ...int64) (int64, bool) {
	for _, n := range shape {
		if n < 0 || n > 0 && width > math.MaxInt64/n {
			return 0, false
		}
		width *= n
	}
	return width, true
}

// newTensor returns a column as a tensor without an offset. One of BYTES has the size of the lengths alone.
func newTensor(name string, of datatype, rows int64, lists []int64) (Tensor, error) {
	t := Tensor{Name: name, Datatype: of.name, Shape: append([]int64{rows}, lists...)}
	var fits bool
	if t.ByteSize, fits = size(of.width, t.Shape...); !fits {
		return t, fielderr.Invalid(opRegion, "shape", t.Shape, "elements that fit into memory")
	}
	return t, nil
}

// tensorOf returns a column as a tensor without an offset, and its address, which is aligned. It waits for the
// column's event if its nulls have to be counted.
func tensorOf(ctx context.Context, column *cdevice.Array) (t Tensor, at device.Ptr, err error) {
	of, lists, err := elementsInPlace(column.DataType())
	if err != nil {
		return t, 0, err
	}
	if t, err = newTensor(column.Field().Name, of, column.Len(), lists); err != nil {
		return t, 0, err
	}
	column.Retain()
	values, err := innermost(ctx, column, lists)
	if err != nil {
		return t, 0, err
	}
	defer values.Release()
	err = fielderr.CheckAligned(opRegion, "Buffers[1]", uintptr(values.Buffers()[1]), of.width, "CopyTo with Device.Shareable makes a copy that is aligned")
	for range lists {
		err = fielderr.Within("children[0]", err)
	}
	return t, addressOf(values, of), err
}

// addressOf returns the address of the first element of an array.
func addressOf(values *cdevice.Array, of datatype) device.Ptr {
	return values.Buffers()[1] + device.Ptr(values.Offset()*of.width)
}

// innermost returns the elements of nested fixed-size lists that the rows of a column use, as an array
// that the caller owns, and takes the column. No list or element is null.
func innermost(ctx context.Context, column *cdevice.Array, lists []int64) (*cdevice.Array, error) {
	for _, n := range lists {
		if err := checkNulls(ctx, column); err != nil {
			column.Release()
			return nil, err
		}
		start, child := column.Offset(), column.Child(0)
		part, err := child.Slice(start*n, (start+column.Len())*n)
		child.Release()
		column.Release()
		if err != nil {
			return nil, fielderr.During(opRegion, fielderr.Within("children[0]", err))
		}
		column = part
	}
	if err := checkNulls(ctx, column); err != nil {
		column.Release()
		return nil, err
	}
	return column, nil
}

// checkNulls returns an error if an array has nulls, which tensors do not have.
func checkNulls(ctx context.Context, a *cdevice.Array) error {
	nulls, err := a.CountNulls(ctx)
	if err != nil {
		return fielderr.During(opRegion, err)
	}
	if nulls > 0 {
		return fielderr.Invalid(opRegion, "NullCount", nulls, "0: tensors have no nulls")
	}
	return nil
}
