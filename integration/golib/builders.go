//go:build cgo

package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("cases", allCases)
	pyextension.Func("make_array", makeArray, pyextension.WithParams("case", "variant"))
	pyextension.Func("make_batch", makeBatch, pyextension.WithParams("case", "variant"))
	pyextension.Func("make_bare_array", makeBareArray, pyextension.WithParams("case"))
	pyextension.Func("make_annotated_batch", makeAnnotatedBatch)
}

// allocator counts the bytes of the objects made here; see stats.
var allocator = memory.NewCheckedAllocator(memory.NewGoAllocator())

// allCases returns the name and the type of every case of makeArray, and the variants of each.
func allCases() map[string]any {
	all := []any{}
	for _, c := range cases.All() {
		all = append(all, map[string]string{"name": c.Name, "type": c.Type.String()})
	}
	return map[string]any{"cases": all, "variants": cases.Variants}
}

func findCase(name string) (cases.Case, error) {
	for _, c := range cases.All() {
		if c.Name == name {
			return c, nil
		}
	}
	return cases.Case{}, fmt.Errorf("golib: no case is called %q", name)
}

func makeArray(name, variant string) (arrow.Array, error) {
	c, err := findCase(name)
	if err != nil {
		return nil, err
	}
	return c.Array(allocator, cases.Variant(variant))
}

// makeBareArray makes an array without elements and without buffers, as arrow-go allows.
func makeBareArray(name string) (arrow.Array, error) {
	c, err := findCase(name)
	if err != nil {
		return nil, err
	}
	data := bareData(c.Type)
	defer data.Release()
	return array.MakeFromData(data), nil
}

func bareData(dt arrow.DataType) *array.Data {
	storage := dt
	if ext, ok := dt.(arrow.ExtensionType); ok {
		storage = ext.StorageType()
	}
	buffers := make([]*memory.Buffer, len(storage.Layout().Buffers))
	if _, ok := storage.(arrow.UnionType); ok {
		buffers = append(buffers, nil) // arrow-go keeps an empty place for a bitmap
	}
	if dictionary, ok := storage.(*arrow.DictionaryType); ok {
		values := bareData(dictionary.ValueType)
		defer values.Release()
		return array.NewDataWithDictionary(dt, 0, buffers, 0, 0, values)
	}
	var children []arrow.ArrayData
	if nested, ok := storage.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			child := bareData(f.Type)
			defer child.Release()
			children = append(children, child)
		}
	}
	return array.NewData(dt, 0, buffers, children, 0, 0)
}

// makeBatch makes a batch whose columns "a" and "b" are the same array.
func makeBatch(name, variant string) (arrow.RecordBatch, error) {
	arr, err := makeArray(name, variant)
	if err != nil {
		return nil, err
	}
	defer arr.Release()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "a", Type: arr.DataType(), Nullable: true},
		{Name: "b", Type: arr.DataType(), Nullable: true},
	}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{arr, arr}, int64(arr.Len())), nil
}

// makeAnnotatedBatch makes a batch without rows, whose schema uses every feature of a schema besides names and types.
func makeAnnotatedBatch() arrow.RecordBatch {
	b := array.NewRecordBuilder(allocator, annotatedSchema())
	defer b.Release()
	return b.NewRecordBatch()
}

func annotatedSchema() *arrow.Schema {
	dictionary := func(ordered bool) arrow.DataType {
		return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String, Ordered: ordered}
	}
	sorted := arrow.MapOfFields(
		arrow.Field{Name: "key", Type: arrow.BinaryTypes.String},
		arrow.Field{Name: "value", Type: arrow.PrimitiveTypes.Int32},
	)
	sorted.KeysSorted = true
	inner := arrow.Field{Name: "inner", Type: arrow.PrimitiveTypes.Int16, Metadata: arrow.MetadataFrom(map[string]string{"depth": "1"})}
	metadata := arrow.NewMetadata([]string{"schema", "empty"}, []string{"of the batch", ""})
	return arrow.NewSchema([]arrow.Field{
		{Name: "nullable", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "required", Type: arrow.PrimitiveTypes.Int64},
		{Name: "ünïcode", Type: arrow.BinaryTypes.String, Nullable: true, Metadata: arrow.NewMetadata([]string{"unit"}, []string{"µm"})},
		{Name: "ordered", Type: dictionary(true), Nullable: true},
		{Name: "unordered", Type: dictionary(false), Nullable: true},
		{Name: "sorted", Type: sorted, Nullable: true},
		{Name: "unsorted", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), Nullable: true},
		{Name: "struct", Type: arrow.StructOf(inner), Nullable: true},
		{Name: "list", Type: arrow.ListOfField(inner)},
	}, &metadata)
}
