package cdevice

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Array is an array that knows which device its memory lives on: what
// [RecordBatch] is for a batch. It carries a field, so that the name, the
// nullability and the metadata of an imported schema survive an export.
type Array struct {
	shared
	field arrow.Field
	node  tree.Node
	host  arrow.Array // what was wrapped, if that is exactly this array
}

func newArray(mem *tree.Owner, at tree.Location, field arrow.Field, n tree.Node) *Array {
	a := &Array{field: field, node: n}
	a.init("Array", mem, at)
	return a
}

// DataType returns the type of the elements.
func (a *Array) DataType() arrow.DataType { return a.field.Type }

// Field returns the field that the array was imported with or is a column of.
// For a wrapped array it has the type and is nullable.
func (a *Array) Field() arrow.Field { return a.field }

// Len is the number of elements.
func (a *Array) Len() int64 { return a.node.Length }

// NullCount is the number of nulls, or -1 where finding out would mean to read
// the memory.
func (a *Array) NullCount() int64 { return a.node.Nulls }

// Offset is how many elements lie in the buffers before the first of the array.
func (a *Array) Offset() int64 { return a.node.Offset }

// Buffers are the addresses of the buffers on the device, in the order of the columnar
// format, for work of one's own: 0 is a bitmap that is not there. They borrow: they are
// valid as long as the array is held, and, after [Array.UsedOn], until the work is done
// that uses them. The data is there once a stream has waited ([Array.WaitOn]). It must not
// be changed.
//
// https://arrow.apache.org/docs/format/Columnar.html#buffer-listing-for-each-layout
func (a *Array) Buffers() []device.Ptr {
	count := len(a.node.Buffers)
	if a.node.Layout.Kind == layout.View {
		count-- // the sizes of the others, in host memory
	}
	buffers := make([]device.Ptr, count)
	for i := range buffers {
		buffers[i] = device.Ptr(a.node.Buffers[i])
	}
	return buffers
}

// NumChildren is the number of child arrays; of a dictionary array it is one, the
// dictionary.
func (a *Array) NumChildren() int { return len(a.node.Children) }

// Child returns child i, or the dictionary, as an array that shares the memory. It is the
// whole child: what of it belongs to the array, its offset and its offsets buffer say. The
// result is owned by the caller. It panics where i is out of range, as indexing a slice
// does, and on an array that was released.
func (a *Array) Child(i int) *Array {
	if err := a.alive(fielderr.OpColumn); err != nil {
		panic(err)
	}
	n := a.node.Children[i] // may panic: before the reference is taken
	a.mustHold(fielderr.OpColumn)
	return newArray(a.mem, a.at(), arrow.Field{Type: n.Type, Nullable: true}, n)
}

// Slice returns elements [i, j), sharing the memory; see [RecordBatch.Slice].
func (a *Array) Slice(i, j int64) (*Array, error) {
	if err := a.alive(fielderr.OpSlice); err != nil {
		return nil, err
	}
	if err := checkSlice(i, j, a.node.Length); err != nil {
		return nil, err
	}
	if err := a.hold(fielderr.OpSlice); err != nil {
		return nil, err
	}
	return newArray(a.mem, a.at(), a.field, a.node.Slice(i, j)), nil
}

// String describes the array without reading its memory.
func (a *Array) String() string {
	return fmt.Sprintf("array on %s, %d elements: %s", a.place.ID, a.node.Length, a.field.Type)
}
