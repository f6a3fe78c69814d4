package main

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// rows is the length of every benchmarked batch. No operation here reads the data, so that a longer
// batch costs the same.
const rows = 1000

// shape is a record batch to measure with, and the same batch as a C program has it.
type shape struct {
	name    string
	columns int
	rec     arrow.RecordBatch
	tree    cpeer.Tree
	pins    *runtime.Pinner // of Go memory that the tree points to
}

func newShape(name string, columns int, mem memory.Allocator, build func(memory.Allocator) arrow.Array) shape {
	fields := make([]arrow.Field, columns)
	arrays := make([]arrow.Array, columns)
	root := cpeer.Node{Length: rows, Buffers: []uintptr{0}}
	pins := new(runtime.Pinner)
	for i := range arrays {
		arrays[i] = build(mem)
		fields[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: arrays[i].DataType(), Nullable: true}
		root.Children = append(root.Children, peerNode(arrays[i].Data(), pins))
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rows)
	for _, a := range arrays {
		a.Release()
	}
	return shape{name: name, columns: columns, rec: rec, tree: cpeer.NewTree(root), pins: pins}
}

func (s shape) release() {
	s.tree.Free()
	s.pins.Unpin()
	s.rec.Release()
}

// peerNode describes arrow-go's data to the C producer.
func peerNode(data arrow.ArrayData, pins *runtime.Pinner) cpeer.Node {
	n := cpeer.Node{Length: int64(data.Len()), NullCount: int64(data.NullN())}
	for _, b := range data.Buffers() {
		addr := uintptr(0)
		if b != nil && b.Len() > 0 {
			p := unsafe.SliceData(b.Bytes())
			pins.Pin(p)
			addr = uintptr(unsafe.Pointer(p))
		}
		n.Buffers = append(n.Buffers, addr)
	}
	for _, c := range data.Children() {
		n.Children = append(n.Children, peerNode(c, pins))
	}
	return n
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
