//go:build cgo

// A sliced sparse union is exported with children shorter than offset+length; importing it panics.
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

// try runs one step and says whether it panicked.
func try(step string, f func()) (panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			fmt.Printf("%s: panic: %v\n", step, p)
		}
	}()
	f()
	fmt.Printf("%s: ok\n", step)
	return false
}

func main() {
	dt := arrow.SparseUnionOf([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, []int8{0})
	b := array.NewSparseUnionBuilder(mallocator.NewMallocator(), dt)
	for i := range 10 {
		b.Append(0)
		b.Child(0).(*array.Int64Builder).Append(int64(i))
	}
	whole := b.NewArray()

	var (
		sliced arrow.Array
		ca     cdata.CArrowArray
		cs     cdata.CArrowSchema
		err    error
	)
	if try("slice", func() { sliced = array.NewSlice(whole, 2, 8) }) ||
		try("export", func() { cdata.ExportArrowArray(sliced, &ca, &cs) }) {
		fmt.Println("reproduced: a panic before the import")
		return
	}
	top := (*cArray)(unsafe.Pointer(&ca))
	child := *top.children
	fmt.Printf("exported union: offset %d, length %d; its child: offset %d, length %d\n",
		top.offset, top.length, child.offset, child.length)
	short := child.length < top.offset+top.length
	if try("import", func() { _, _, err = cdata.ImportCArray(&ca, &cs) }) || short || err != nil {
		fmt.Printf("reproduced: child too short: %v; error returned by the import: %v\n", short, err)
		return
	}
	fmt.Println("not reproduced: exported and imported")
}
