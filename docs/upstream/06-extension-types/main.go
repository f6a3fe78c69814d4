//go:build cgo

// Extension types: nested, view and dictionary storage is not exported; nothing is rebuilt on import.
package main

import (
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

type extArray struct{ array.ExtensionArrayBase }

// extType is an extension type over any storage.
type extType struct{ arrow.ExtensionBase }

func ext(dt arrow.DataType) *extType     { return &extType{arrow.ExtensionBase{Storage: dt}} }
func (*extType) ArrayType() reflect.Type { return reflect.TypeOf(extArray{}) }
func (*extType) ExtensionName() string   { return "upstream.example" }
func (*extType) Serialize() string       { return "" }
func (e *extType) ExtensionEquals(o arrow.ExtensionType) bool {
	return o.ExtensionName() == e.ExtensionName() && arrow.TypeEqual(e.Storage, o.StorageType())
}
func (*extType) Deserialize(dt arrow.DataType, _ string) (arrow.ExtensionType, error) {
	return ext(dt), nil
}

// roundTrip describes what becomes of a two-row array of the extension type over dt.
func roundTrip(dt arrow.DataType) (result string, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			result, ok = fmt.Sprint("panic: ", p), false
		}
	}()
	b := array.NewBuilder(mallocator.NewMallocator(), dt)
	b.AppendEmptyValues(2)
	d := b.NewArray().Data() // NewExtensionArrayWithStorage would drop the dictionary
	data := array.NewData(ext(dt), d.Len(), d.Buffers(), d.Children(), d.NullN(), d.Offset())
	data.SetDictionary(d.Dictionary())
	arr := array.NewExtensionData(data)
	var ca cdata.CArrowArray
	var cs cdata.CArrowSchema
	cdata.ExportArrowArray(arr, &ca, &cs)
	_, back, err := cdata.ImportCArray(&ca, &cs)
	if err != nil {
		return "error: " + err.Error(), false
	}
	return back.DataType().String(), arrow.TypeEqual(arr.DataType(), back.DataType())
}

func main() {
	if err := arrow.RegisterExtensionType(ext(arrow.PrimitiveTypes.Int64)); err != nil {
		panic(err)
	}
	i64, str := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	field, bad := arrow.Field{Name: "x", Type: i64, Nullable: true}, 0
	for _, dt := range []arrow.DataType{i64, arrow.StructOf(field), arrow.ListOf(i64), arrow.FixedSizeListOf(2, i64),
		arrow.BinaryTypes.StringView, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: str},
		arrow.SparseUnionOf([]arrow.Field{field}, []int8{0}), arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, i64)} {
		result, ok := roundTrip(dt)
		if !ok {
			bad++
		}
		fmt.Printf("storage %s: %s\n", dt, result)
	}
	fmt.Printf("%s: %d of 8 extension arrays came back as something else\n",
		map[bool]string{true: "reproduced", false: "not reproduced"}[bad > 0], bad)
}
