//go:build cgo

// ExportRecordReader takes a reference of its own although it says that it takes ownership.
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
	mem := memory.NewCheckedAllocator(mallocator.NewMallocator())
	b := array.NewInt64Builder(mem)
	b.AppendValues([]int64{1, 2, 3}, nil)
	col := b.NewArray()
	b.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: col.DataType()}}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{col}, 3)
	col.Release()
	reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{rec})
	if err != nil {
		panic(err)
	}
	rec.Release()

	// As documented: the stream takes ownership, so there is no need to release the reader here.
	var st cdata.CArrowArrayStream
	cdata.ExportRecordReader(reader, &st)
	cdata.ReleaseCArrowArrayStream(&st)
	leaked := mem.CurrentAlloc()
	fmt.Printf("after the stream's release: %d bytes allocated\n", leaked)
	reader.Release()
	fmt.Printf("after a further release of the reader: %d bytes allocated\n", mem.CurrentAlloc())
	if leaked > 0 {
		fmt.Println("reproduced: the reader outlives the stream that owns it")
		return
	}
	fmt.Println("not reproduced: the stream's release freed everything")
}
