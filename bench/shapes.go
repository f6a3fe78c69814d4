package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// rows is the length of every benchmarked batch. Only validation reads the data, so that for the
// other operations a longer batch costs the same.
const rows = 1000

// subject is a shape to measure with.
type subject struct {
	name    string
	columns int
	mem     memory.Allocator
	build   func(memory.Allocator) arrow.Array
}

// onGoHeap is the shape whose buffers the garbage collector owns.
const onGoHeap = "int64 on the Go heap"

func subjects() (all []subject) {
	offHeap := mallocator.NewMallocator()
	for _, columns := range []int{1, 10, 100, 1000, 10_000} {
		all = append(all, int64Subject(columns))
	}
	return append(all,
		subject{"utf8", 100, offHeap, utf8s},
		subject{"string_view", 100, offHeap, stringViews},
		subject{"dictionary", 100, offHeap, dictionaries},
		subject{"list<struct>", 100, offHeap, listsOfStructs},
		subject{"depth 16", 100, offHeap, deep},
		subject{onGoHeap, 100, memory.NewGoAllocator(), int64s})
}

func int64Subject(columns int) subject {
	return subject{"int64", columns, mallocator.NewMallocator(), int64s}
}

// shape is a record batch to measure with.
type shape struct {
	name    string
	columns int
	rec     arrow.RecordBatch
	batch   *cdevice.RecordBatch // the same, wrapped
	sub     subject
}

func newShape(sub subject) shape {
	rec := sub.newBatch(nil)
	return shape{sub.name, sub.columns, rec, must(cdevice.WrapRecordBatch(rec, device.CPUDevice())), sub}
}

// newBatch returns a batch of the shape, with a schema of the shape or a new one.
func (sub subject) newBatch(schema *arrow.Schema) arrow.RecordBatch {
	fields := make([]arrow.Field, sub.columns)
	arrays := make([]arrow.Array, sub.columns)
	for i := range arrays {
		arrays[i] = sub.build(sub.mem)
		fields[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: arrays[i].DataType(), Nullable: true}
	}
	if schema == nil {
		schema = arrow.NewSchema(fields, nil)
	}
	rec := array.NewRecordBatch(schema, arrays, rows)
	for _, a := range arrays {
		a.Release()
	}
	return rec
}

func (s shape) release() {
	s.batch.Release()
	s.rec.Release()
}

func int64s(mem memory.Allocator) arrow.Array {
	b := array.NewInt64Builder(mem)
	defer b.Release()
	for i := range rows {
		b.Append(int64(i))
	}
	return b.NewArray()
}

func utf8s(mem memory.Allocator) arrow.Array {
	b := array.NewStringBuilder(mem)
	defer b.Release()
	for i := range rows {
		b.Append(fmt.Sprintf("value %d", i))
	}
	return b.NewArray()
}

// stringViews has values that fit into the view, and longer ones.
func stringViews(mem memory.Allocator) arrow.Array {
	b := array.NewStringViewBuilder(mem)
	defer b.Release()
	for i := range rows {
		if i%2 == 0 {
			b.Append(fmt.Sprintf("value %d", i))
		} else {
			b.Append(fmt.Sprintf("a longer value %d", i))
		}
	}
	return b.NewArray()
}

func dictionaries(mem memory.Allocator) arrow.Array {
	b := array.NewDictionaryBuilder(mem, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	defer b.Release()
	for i := range rows {
		check(b.AppendString(fmt.Sprintf("value %d", i%10)))
	}
	return b.NewArray()
}

func listsOfStructs(mem memory.Allocator) arrow.Array {
	point := arrow.StructOf(
		arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		arrow.Field{Name: "y", Type: arrow.PrimitiveTypes.Float64, Nullable: true})
	b := array.NewListBuilder(mem, point)
	defer b.Release()
	points := b.ValueBuilder().(*array.StructBuilder)
	for i := range rows {
		b.Append(true)
		points.Append(true)
		points.FieldBuilder(0).(*array.Int64Builder).Append(int64(i))
		points.FieldBuilder(1).(*array.Float64Builder).Append(float64(i))
	}
	return b.NewArray()
}

// deep is an int64 below 15 structs.
func deep(mem memory.Allocator) arrow.Array {
	values := int64s(mem)
	for range 15 {
		data := array.NewData(arrow.StructOf(arrow.Field{Name: "inner", Type: values.DataType(), Nullable: true}), rows,
			[]*memory.Buffer{nil}, []arrow.ArrayData{values.Data()}, 0, 0)
		values.Release()
		values = array.MakeFromData(data)
		data.Release()
	}
	return values
}
