//go:build cgo

// null_count -1 together with a NULL validity bitmap is refused.
package main

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

// cArray is the start of struct ArrowArray of the specification: cdata hides its fields.
type cArray struct{ length, nullCount int64 }

func main() {
	b := array.NewInt64Builder(mallocator.NewMallocator())
	b.AppendValues([]int64{1, 2, 3}, nil)
	all := b.NewArray()

	// No nulls and no bitmap: build the array without one.
	d := all.Data()
	bufs := append(d.Buffers()[:0:0], nil, d.Buffers()[1])
	arr := array.NewInt64Data(array.NewData(d.DataType(), d.Len(), bufs, nil, 0, 0))

	for _, count := range []int64{0, -1} {
		var ca cdata.CArrowArray
		cdata.ExportArrowArray(arr, &ca, nil)
		(*cArray)(unsafe.Pointer(&ca)).nullCount = count
		_, err := cdata.ImportCArrayWithType(&ca, arrow.PrimitiveTypes.Int64)
		fmt.Printf("bitmap NULL, null_count %d: error %v\n", count, err)
		if count < 0 && err != nil {
			fmt.Println("reproduced: refused")
			return
		}
	}
	fmt.Println("not reproduced: accepted")
}
