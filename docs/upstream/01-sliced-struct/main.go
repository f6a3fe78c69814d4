//go:build cgo

// A sliced struct column is exported with its offset applied twice.
package main

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

// cArray is struct ArrowArray of the specification: cdata hides its fields.
type cArray struct {
	length, nullCount, offset, nBuffers, nChildren int64
	buffers                                        *unsafe.Pointer
	children                                       **cArray
	dictionary                                     *cArray
	release, privateData                           unsafe.Pointer
}

func main() {
	point := arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64})
	b := array.NewStructBuilder(mallocator.NewMallocator(), point)
	for i := range 10 {
		b.Append(true)
		b.FieldBuilder(0).(*array.Int64Builder).Append(int64(i))
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "p", Type: point}}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 10)
	sliced := rec.NewSlice(2, 8)
	want := sliced.Column(0).(*array.Struct)

	var ca cdata.CArrowArray
	var cs cdata.CArrowSchema
	cdata.ExportArrowRecordBatch(sliced, &ca, &cs)
	col := *(*cArray)(unsafe.Pointer(&ca)).children
	child := *col.children
	fmt.Printf("exported column: offset %d, length %d; its child: offset %d, length %d\n",
		col.offset, col.length, child.offset, child.length)

	back, err := cdata.ImportCRecordBatch(&ca, &cs)
	if err != nil {
		fmt.Println("not reproduced: import failed:", err)
		return
	}
	got := back.Column(0).(*array.Struct)
	fmt.Println("x before the export:", want.Field(0))
	fmt.Println("x after the import: ", got.Field(0))
	fmt.Println("ValidateFull of the imported column:", got.ValidateFull())
	if array.Equal(want.Field(0), got.Field(0)) {
		fmt.Println("not reproduced: the rows are the same")
		return
	}
	fmt.Println("reproduced: the rows differ and no error was returned")
}
