package dlpack_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// A column of vectors becomes a matrix, and the matrix a column again.
func Example() {
	vectors := arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32)
	values, _, err := array.FromJSON(memory.DefaultAllocator, vectors, strings.NewReader("[[1, 2], [3, 4], [5, 6]]"))
	if err != nil {
		log.Fatal(err)
	}
	defer values.Release()
	column, err := cdevice.WrapArray(values, device.CPUDevice())
	if err != nil {
		log.Fatal(err)
	}
	defer column.Release()

	tensor, err := dlpack.Export(column)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tensor.Tensor.NDim, "dimensions, read-only:", tensor.Flags&dlpack.FlagReadOnly != 0)

	// The consumer, which calls the deleter: here it is this program.
	back, err := dlpack.Import(tensor)
	if err != nil {
		log.Fatal(err)
	}
	defer back.Release()
	view, err := back.HostView(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer view.Release()
	fmt.Println(view)
	// Output:
	// 2 dimensions, read-only: true
	// [[1 2] [3 4] [5 6]]
}
