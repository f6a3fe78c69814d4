//go:build cgo

// ImportCRecordBatch drops the nulls of the top-level struct.
package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

func main() {
	field := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	mem := mallocator.NewMallocator()
	b := array.NewInt64Builder(mem)
	b.AppendValues([]int64{0, 1, 2, 3}, nil)
	bitmap := memory.NewResizableBuffer(mem)
	bitmap.Resize(1)
	bitmap.Bytes()[0] = 0b1101 // row 1 is null in the struct; below it the child holds 1
	arr, err := array.NewStructArrayWithFieldsAndNulls(
		[]arrow.Array{b.NewArray()}, []arrow.Field{field}, bitmap, 1, 0)
	if err != nil {
		panic(err)
	}

	var ca cdata.CArrowArray
	var cs cdata.CArrowSchema
	cdata.ExportArrowArray(arr, &ca, &cs)
	back, err := cdata.ImportCRecordBatch(&ca, &cs)
	fmt.Println("struct array:", arr)
	if err != nil {
		fmt.Println("not reproduced: refused:", err)
		return
	}
	fmt.Println("record batch: x =", back.Column(0))
	if back.Column(0).IsValid(1) {
		fmt.Println("reproduced: the null row came back as a value and no error was returned")
		return
	}
	fmt.Println("not reproduced: the row is null")
}
