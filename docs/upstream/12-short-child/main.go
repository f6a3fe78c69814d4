//go:build cgo

// A child shorter than its parent: the import panics or accepts it.
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

// try exports four rows of dt, cuts the child to two rows, imports, and reads row 3.
func try(name string, dt arrow.DataType, asBatch bool) (bad bool) {
	b := array.NewBuilder(mallocator.NewMallocator(), dt)
	b.AppendEmptyValues(4)
	var ca cdata.CArrowArray
	var cs cdata.CArrowSchema
	cdata.ExportArrowArray(b.NewArray(), &ca, &cs)
	child := *(*cArray)(unsafe.Pointer(&ca)).children
	child.length /= 2
	name = fmt.Sprintf("%s, child of %d rows", name, child.length)

	step := "import"
	defer func() {
		if p := recover(); p != nil {
			bad = true
			fmt.Printf("%s: %s panics: %v\n", name, step, p)
		}
	}()
	var err error
	var arr arrow.Array
	if asBatch {
		_, err = cdata.ImportCRecordBatch(&ca, &cs)
	} else {
		_, arr, err = cdata.ImportCArray(&ca, &cs)
	}
	if err == nil {
		step = "import returns no error, reading row 3"
		arr.GetOneForMarshal(3)
	}
	fmt.Printf("%s: error %v\n", name, err)
	return err == nil
}

func main() {
	x := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64}
	bad := 0
	for _, b := range []bool{try("record batch", arrow.StructOf(x), true), try("struct", arrow.StructOf(x), false),
		try("sparse union", arrow.SparseUnionOf([]arrow.Field{x}, []int8{0}), false),
		try("fixed size list", arrow.FixedSizeListOf(1, x.Type), false)} {
		if b {
			bad++
		}
	}
	fmt.Printf("%s: %d of 4 without an error\n",
		map[bool]string{true: "reproduced", false: "not reproduced"}[bad > 0], bad)
}
