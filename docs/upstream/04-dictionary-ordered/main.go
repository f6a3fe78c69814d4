//go:build cgo

// The flag ARROW_FLAG_DICTIONARY_ORDERED is lost on import.
package main

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
)

// cSchema is struct ArrowSchema of the specification: cdata hides its fields.
type cSchema struct {
	format, name, metadata *byte
	flags, nChildren       int64
	children               **cSchema
	dictionary             *cSchema
	release, privateData   unsafe.Pointer
}

const flagOrdered = 1

// roundTrip exports a dictionary type, lets edit change the C struct, and imports it.
func roundTrip(ordered bool, edit func(*cSchema)) bool {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32,
		ValueType: arrow.BinaryTypes.String, Ordered: ordered}
	schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt}}, nil)
	var cs cdata.CArrowSchema
	cdata.ExportArrowSchema(schema, &cs)
	edit(*(*cSchema)(unsafe.Pointer(&cs)).children)
	back, err := cdata.ImportCArrowSchema(&cs)
	if err != nil {
		panic(err)
	}
	return back.Field(0).Type.(*arrow.DictionaryType).Ordered
}

func main() {
	a := roundTrip(true, func(d *cSchema) {
		fmt.Printf("exported flags: %d on the field, %d on its dictionary\n", d.flags, d.dictionary.flags)
	})
	b := roundTrip(false, func(d *cSchema) { d.dictionary.flags |= flagOrdered })
	fmt.Println("flag on the field, as exported:  imported as ordered:", a)
	fmt.Println("flag on the dictionary's schema: imported as ordered:", b)
	if !a || b {
		fmt.Println("reproduced: the flag is read from the wrong struct")
		return
	}
	fmt.Println("not reproduced: the flag is read from the field")
}
