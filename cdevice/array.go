package cdevice

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Array is an array together with the device that its memory is on: what [RecordBatch] is for a
// batch. Its field keeps the name, nullability and metadata of an imported schema for an export.
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
// For a wrapped array it has its type, no name, and is nullable.
func (a *Array) Field() arrow.Field { return a.field }

// Len returns the number of elements.
func (a *Array) Len() int64 { return a.node.Length }

// NullCount returns the number of nulls, or -1 if it is not known. [Array.CountNulls] counts them.
func (a *Array) NullCount() int64 { return a.node.Nulls }

// Offset returns the number of elements in the buffers before the first element of the array.
func (a *Array) Offset() int64 { return a.node.Offset }

// Buffers returns the addresses of the buffers on the device, in the order of the columnar format,
// for work that the program enqueues itself. The address of an absent bitmap is 0.
//
// The addresses are borrowed: they are valid while the array is held and, for work recorded with
// [Array.UsedOn], until that work has completed. The buffers may be read by work on a stream that
// waits for the array ([Array.WaitOn]). They must not be written to.
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

// NumChildren returns the number of child arrays. A dictionary array has one, the dictionary.
func (a *Array) NumChildren() int { return len(a.node.Children) }

// Child returns child i, or the dictionary, as an array that shares the memory. It is the whole
// child; the offset and the offsets buffer of the parent select the elements in use. The result is
// owned by the caller. Child panics if i is out of range, as indexing a slice does, or if the array
// was released.
func (a *Array) Child(i int) *Array {
	if err := a.alive(fielderr.OpColumn); err != nil {
		panic(err)
	}
	if err := checkIndex(fielderr.OpColumn, i, len(a.node.Children), "child array"); err != nil {
		panic(err)
	}
	n := a.node.Children[i]
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
	return fmt.Sprintf("array on %s, %d elements: %s", a.location.ID, a.node.Length, a.field.Type)
}

// UsedOn records that work on the stream accesses the memory; see [RecordBatch.UsedOn].
func (a *Array) UsedOn(stream device.Stream) error {
	return a.usedOn(stream, func() []tree.Node { return a.tree().Nodes })
}

// tree returns the array's node. The caller holds the memory.
func (a *Array) tree() tree.Tree {
	return tree.Tree{Mem: a.mem, At: a.at(), Nodes: []tree.Node{a.node}, Name: tree.ArrayName}
}

// atForCPU is [RecordBatch.atForCPU] for the array.
func (a *Array) atForCPU() tree.Location {
	at := a.at()
	if at.CPUAccessible() {
		return at
	}
	return at.ForCPU(a.tree().Nodes)
}
