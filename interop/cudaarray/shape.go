package cudaarray

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// maxDimensions is the most that NumPy has.
const maxDimensions = 64

// checkShape checks the dimensions of an import, and returns the number of elements.
func checkShape(shape []int64, width int64) (count int64, err error) {
	bad := func(want string) (int64, error) {
		return 0, fielderr.Invalid(opImport, "shape", shape, want)
	}
	switch {
	case len(shape) == 0:
		return bad("at least one dimension: an array has a length")
	case len(shape) > maxDimensions:
		return 0, fielderr.Invalid(opImport, "shape", fmt.Sprintf("%d dimensions", len(shape)), fmt.Sprintf("at most %d", maxDimensions))
	}
	count = 1
	for i, n := range shape {
		switch {
		case n < 0:
			return bad("no negative length")
		case i > 0 && (n == 0 || n > math.MaxInt32):
			return bad("lists of 1 to 2147483647 elements, as fixed_size_list has")
		case n > 0 && count > math.MaxInt64/width/n:
			return bad("elements that fit into memory")
		}
		count *= n
	}
	return count, nil
}

// checkStrides returns an error unless the elements are in C order without gaps.
func checkStrides(i *Interface, width, count int64) error {
	if i.Strides == nil {
		return nil
	}
	if len(i.Strides) != len(i.Shape) {
		return fielderr.Invalid(opImport, "strides", fmt.Sprintf("%d numbers", len(i.Strides)), fmt.Sprintf("%d, one for each dimension", len(i.Shape)))
	}
	want := make([]int64, len(i.Shape))
	compact, next := true, width
	for d := len(i.Shape) - 1; d >= 0; d-- {
		want[d] = next
		if i.Shape[d] != 1 && i.Strides[d] != next { // the step of a dimension of 1 is never made
			compact = false
		}
		next *= i.Shape[d]
	}
	if compact || count == 0 {
		return nil
	}
	return fielderr.New(opImport, "strides", i.Strides, fmt.Sprintf("%v: Arrow's arrays have no gaps and no other order, so the producer makes a contiguous copy", want), arrow.ErrNotImplemented)
}

// nested returns the type of an array of a shape whose elements are of type dt.
func nested(dt arrow.DataType, shape []int64) arrow.DataType {
	for d := len(shape) - 1; d > 0; d-- {
		dt = arrow.FixedSizeListOf(int32(shape[d]), dt)
	}
	return dt
}
