//go:build cgo

// Importing a map type forgets what its key and item fields say.
package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
)

func roundTrip(dt arrow.DataType) arrow.DataType {
	var cs cdata.CArrowSchema
	cdata.ExportArrowSchema(arrow.NewSchema([]arrow.Field{{Name: "f", Type: dt}}, nil), &cs)
	back, err := cdata.ImportCArrowSchema(&cs)
	if err != nil {
		panic(err)
	}
	return back.Field(0).Type
}

func main() {
	key := arrow.Field{Name: "key", Type: arrow.BinaryTypes.String,
		Metadata: arrow.NewMetadata([]string{"k"}, []string{"key metadata"})}
	item := arrow.Field{Name: "value", Type: arrow.PrimitiveTypes.Int64, Nullable: false,
		Metadata: arrow.NewMetadata([]string{"k"}, []string{"item metadata"})}

	want := arrow.MapOfFields(key, item)
	got := roundTrip(want).(*arrow.MapType)
	fmt.Printf("key:  before %v\n      after  %v\n", want.KeyField(), got.KeyField())
	fmt.Printf("item: before %v\n      after  %v\n", want.ItemField(), got.ItemField())

	// The same two fields below a list of structs survive.
	list := arrow.ListOf(arrow.StructOf(key, item))
	fmt.Println("list of the same struct survives:", arrow.TypeEqual(list, roundTrip(list), arrow.CheckMetadata()))

	var lost []string
	if got.ItemField().Nullable != item.Nullable {
		lost = append(lost, "item nullability")
	}
	if !got.KeyField().Metadata.Equal(key.Metadata) {
		lost = append(lost, "key metadata")
	}
	if !got.ItemField().Metadata.Equal(item.Metadata) {
		lost = append(lost, "item metadata")
	}
	if len(lost) > 0 {
		fmt.Printf("reproduced: lost: %q\n", lost)
		return
	}
	fmt.Println("not reproduced: the fields survive")
}
