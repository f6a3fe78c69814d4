package cdevice

import (
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// Array is an array that knows which device its memory lives on: what
// [RecordBatch] is for a batch. It carries a field, so that the name, the
// nullability and the metadata of an imported schema survive an export.
type Array struct {
	refs  atomic.Int64
	mem   *memoryOwner
	place place
	field arrow.Field
	node  node
	host  arrow.Array // what was wrapped, if that is exactly this array
}

func newArray(mem *memoryOwner, at place, field arrow.Field, n node) *Array {
	a := &Array{mem: mem, place: at, field: field, node: n}
	a.refs.Store(1)
	return a
}

// Retain adds a reference. It may be called from any goroutine.
func (a *Array) Retain() { a.refs.Add(1) }

// Release drops a reference; see [RecordBatch.Release].
func (a *Array) Release() {
	if a.refs.Add(-1) == 0 {
		a.mem.Release()
	}
}

// DataType returns the type of the elements.
func (a *Array) DataType() arrow.DataType { return a.field.Type }

// Field returns the field that the array was imported with or is a column of.
// For a wrapped array it has the type and is nullable.
func (a *Array) Field() arrow.Field { return a.field }

// Len is the number of elements.
func (a *Array) Len() int64 { return a.node.length }

// NullCount is the number of nulls, or -1 where finding out would mean to read
// the memory.
func (a *Array) NullCount() int64 { return a.node.nulls }

// DeviceID says where the memory lives; see [RecordBatch.DeviceID].
func (a *Array) DeviceID() device.ID { return a.place.id }

// Device opens the device that the memory lives on; see [RecordBatch.Device].
func (a *Array) Device() (device.Device, error) { return a.place.device() }

// Slice returns elements [i, j), sharing the memory; see [RecordBatch.Slice].
func (a *Array) Slice(i, j int64) (*Array, error) {
	if a.refs.Load() <= 0 {
		return nil, fieldError(opSlice, "Array", nil, nil, ErrReleased)
	}
	if err := checkSlice(i, j, a.node.length); err != nil {
		return nil, err
	}
	return newArray(a.mem.retain(), a.place, a.field, a.node.slice(i, j)), nil
}

// String describes the array without reading its memory.
func (a *Array) String() string {
	return fmt.Sprintf("array on %s, %d elements: %s", a.place.id, a.node.length, a.field.Type)
}
