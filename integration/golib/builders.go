package main

// #include <stdint.h>
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// allocator counts the bytes of the objects made here; see golib_stats.
var allocator = memory.NewCheckedAllocator(memory.NewGoAllocator())

func ints(p *C.int, count C.int) []int {
	out := make([]int, count)
	for i, v := range unsafe.Slice(p, count) {
		out[i] = int(v)
	}
	return out
}

type caseInfo struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// golib_cases returns the name and the type of every case of golib_make_array, and the variants of
// each.
//
//export golib_cases
func golib_cases(out **C.char) *C.char {
	return answer(out, func() (any, error) {
		var infos []caseInfo
		for _, c := range cases.All() {
			infos = append(infos, caseInfo{c.Name, c.Type.String()})
		}
		return map[string]any{"cases": infos, "variants": cases.Variants}, nil
	})
}

func findCase(name *C.char) (cases.Case, error) {
	for _, c := range cases.All() {
		if c.Name == C.GoString(name) {
			return c, nil
		}
	}
	return cases.Case{}, fmt.Errorf("golib: no case is called %q", C.GoString(name))
}

func makeCase(name, variant *C.char) (arrow.Array, error) {
	c, err := findCase(name)
	if err != nil {
		return nil, err
	}
	return c.Array(allocator, cases.Variant(C.GoString(variant)))
}

//export golib_make_array
func golib_make_array(name, variant *C.char, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		arr, err := makeCase(name, variant)
		if err != nil {
			return nil, err
		}
		defer arr.Release()
		return wrapArray(arr)
	})
}

// golib_make_bare_array makes an array without elements and without buffers, as
// arrow-go allows.
//
//export golib_make_bare_array
func golib_make_bare_array(name *C.char, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		c, err := findCase(name)
		if err != nil {
			return nil, err
		}
		data := bareData(c.Type)
		defer data.Release()
		arr := array.MakeFromData(data)
		defer arr.Release()
		return wrapArray(arr)
	})
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

// golib_make_batch makes a batch whose columns "a" and "b" are the same array.
//
//export golib_make_batch
func golib_make_batch(name, variant *C.char, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		arr, err := makeCase(name, variant)
		if err != nil {
			return nil, err
		}
		defer arr.Release()
		schema := arrow.NewSchema([]arrow.Field{
			{Name: "a", Type: arr.DataType(), Nullable: true},
			{Name: "b", Type: arr.DataType(), Nullable: true},
		}, nil)
		rec := array.NewRecordBatch(schema, []arrow.Array{arr, arr}, int64(arr.Len()))
		defer rec.Release()
		return wrapBatch(rec)
	})
}

// golib_make_annotated_batch makes a batch with no rows, whose schema uses every feature of a
// schema besides names and types.
//
//export golib_make_annotated_batch
func golib_make_annotated_batch(out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		b := array.NewRecordBuilder(allocator, annotatedSchema())
		defer b.Release()
		rec := b.NewRecordBatch()
		defer rec.Release()
		return wrapBatch(rec)
	})
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
