package main

// #include <stdint.h>
import "C"

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// description has the properties of an object that need no read of its memory.
type description struct {
	Kind     string            `json:"kind"`   // "array" or "batch", which a stream is of
	Device   string            `json:"device"` // of a stream: only its type
	Length   int64             `json:"length"` // of a stream: -1
	Fields   []fieldInfo       `json:"fields"` // of an array: its only one
	Metadata map[string]string `json:"metadata"`
}

type fieldInfo struct {
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Nullable bool              `json:"nullable"`
	Metadata map[string]string `json:"metadata"`
	Children []fieldInfo       `json:"children"`
}

func fieldInfos(fields []arrow.Field) []fieldInfo {
	out := []fieldInfo{}
	for _, f := range fields {
		info := fieldInfo{f.Name, f.Type.String(), f.Nullable, f.Metadata.ToMap(), []fieldInfo{}}
		if nested, ok := f.Type.(arrow.NestedType); ok {
			info.Children = fieldInfos(nested.Fields())
		}
		out = append(out, info)
	}
	return out
}

func (a anArray) describe() description {
	return description{"array", a.DeviceID().String(), a.Len(), fieldInfos([]arrow.Field{a.Field()}), nil}
}

func (b aBatch) describe() description {
	metadata := b.Schema().Metadata()
	return description{"batch", b.DeviceID().String(), b.NumRows(), fieldInfos(b.Schema().Fields()), metadata.ToMap()}
}

//export golib_describe
func golib_describe(handle C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		o, err := borrow(handle)
		if err != nil {
			return nil, err
		}
		return o.describe(), nil
	})
}

// golib_values returns the elements, or the rows, in arrow-go's JSON.
//
//export golib_values
func golib_values(handle C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		view, err := viewOf(handle)
		if err != nil {
			return nil, err
		}
		defer view.Release()
		text, err := view.MarshalJSON()
		return json.RawMessage(text), err
	})
}

// viewOf returns an owned host view of an array or a batch.
func viewOf(handle C.uint64_t) (hostView, error) {
	t, err := get(handle)
	if err != nil {
		return nil, err
	}
	return t.hostView()
}

// buffersInfo has the addresses of one array of a tree.
type buffersInfo struct {
	Length     int           `json:"length"`
	Nulls      int           `json:"nulls"` // counted
	Buffers    []bufferInfo  `json:"buffers"`
	Children   []buffersInfo `json:"children"`
	Dictionary *buffersInfo  `json:"dictionary"`
}

type bufferInfo struct {
	Address uintptr `json:"address"`
	Size    int     `json:"size"` // bytes, as far as the elements need them
}

// golib_buffers returns the addresses of a host view's buffers: one tree for an
// array, a list of trees for a batch. Where there is no buffer, as for most
// types without nulls, the address is 0.
//
//export golib_buffers
func golib_buffers(handle C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		view, err := viewOf(handle)
		if err != nil {
			return nil, err
		}
		defer view.Release()
		if arr, ok := view.(arrow.Array); ok {
			return buffersOf(arr.Data()), nil
		}
		columns := []buffersInfo{}
		for _, column := range view.(arrow.RecordBatch).Columns() {
			columns = append(columns, buffersOf(column.Data()))
		}
		return columns, nil
	})
}

func buffersOf(data arrow.ArrayData) buffersInfo {
	info := buffersInfo{Length: data.Len(), Nulls: nullsOf(data), Buffers: []bufferInfo{}, Children: []buffersInfo{}}
	for _, b := range data.Buffers() {
		info.Buffers = append(info.Buffers, bufferInfo{address(b), size(b)})
	}
	for _, child := range data.Children() {
		info.Children = append(info.Children, buffersOf(child))
	}
	if d, ok := data.Dictionary().(*array.Data); ok && d != nil {
		dictionary := buffersOf(d)
		info.Dictionary = &dictionary
	}
	return info
}

// nullsOf counts in an array of its own, since the first count of one that others use writes to it.
func nullsOf(data arrow.ArrayData) int {
	own := data.(*array.Data).Copy()
	defer own.Release()
	arr := array.MakeFromData(own)
	defer arr.Release()
	return arr.NullN()
}

func address(b *memory.Buffer) uintptr {
	if b == nil {
		return 0
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes())))
}

func size(b *memory.Buffer) int {
	if b == nil {
		return 0
	}
	return b.Len()
}

// golib_compare returns the difference between two arrays, or two batches; an empty text if there
// is none.
//
//export golib_compare
func golib_compare(left, right C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		l, err := viewOf(left)
		if err != nil {
			return nil, err
		}
		defer l.Release()
		r, err := viewOf(right)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		return difference(l, r), nil
	})
}

func difference(l, r hostView) string {
	switch l := l.(type) {
	case arrow.Array:
		if r, ok := r.(arrow.Array); ok {
			return arrayDifference(l, r)
		}
	case arrow.RecordBatch:
		if r, ok := r.(arrow.RecordBatch); ok {
			return batchDifference(l, r)
		}
	}
	return fmt.Sprintf("kind: %T, %T", l, r)
}

func arrayDifference(l, r arrow.Array) string {
	switch {
	case !arrow.TypeEqual(l.DataType(), r.DataType(), arrow.CheckMetadata()):
		return fmt.Sprintf("type: %s, %s", l.DataType(), r.DataType())
	case l.Len() != r.Len():
		return fmt.Sprintf("length: %d, %d", l.Len(), r.Len())
	case l.NullN() != r.NullN():
		return fmt.Sprintf("nulls: %d, %d", l.NullN(), r.NullN())
	case !array.Equal(l, r) && !sameJSON(l, r):
		return fmt.Sprintf("values: %s, %s", l, r)
	}
	return ""
}

// sameJSON has the last word on values: array.Equal also compares the children
// of null structs, where producers may keep anything, and Arrow C++ keeps other
// things than arrow-go.
func sameJSON(l, r arrow.Array) bool {
	left, err := l.MarshalJSON()
	if err != nil {
		return false
	}
	right, err := r.MarshalJSON()
	return err == nil && bytes.Equal(left, right)
}

func batchDifference(l, r arrow.RecordBatch) string {
	if !l.Schema().Equal(r.Schema()) || !l.Schema().Metadata().Equal(r.Schema().Metadata()) {
		return fmt.Sprintf("schema: %s, %s", l.Schema(), r.Schema())
	}
	if l.NumRows() != r.NumRows() {
		return fmt.Sprintf("rows: %d, %d", l.NumRows(), r.NumRows())
	}
	for i := range l.Columns() {
		if d := arrayDifference(l.Column(i), r.Column(i)); d != "" {
			return fmt.Sprintf("column %d: %s", i, d)
		}
	}
	return ""
}
