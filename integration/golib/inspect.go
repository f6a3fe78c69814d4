//go:build cgo

package main

import (
	"bytes"
	"context"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("describe", describe, pyextension.WithParams("item"))
	pyextension.Func("values", values, pyextension.WithParams("item"))
	pyextension.Func("buffers", buffers, pyextension.WithParams("item"))
	pyextension.Func("difference", difference, pyextension.WithParams("left", "right"))
}

// describe returns the properties of an item that need no read of its memory.
func describe(v any) (any, error) {
	return either(v,
		func(a *cdevice.Array) (map[string]any, error) {
			return description("array", a.DeviceID(), a.Len(), []arrow.Field{a.Field()}, arrow.Metadata{}), nil
		},
		func(b *cdevice.RecordBatch) (map[string]any, error) {
			return description("batch", b.DeviceID(), b.NumRows(), b.Schema().Fields(), b.Schema().Metadata()), nil
		})
}

// description has the fields of a batch, or the only one of an array. Of a stream it has the type of its items and of its
// device, and the length -1.
func description(kind string, device fmt.Stringer, length int64, fields []arrow.Field, metadata arrow.Metadata) map[string]any {
	return map[string]any{
		"kind": kind, "device": device.String(), "length": length, "fields": describeFields(fields), "metadata": metadata.ToMap(),
	}
}

func describeFields(fields []arrow.Field) []any {
	all := []any{}
	for _, f := range fields {
		children := []any{}
		if nested, ok := f.Type.(arrow.NestedType); ok {
			children = describeFields(nested.Fields())
		}
		all = append(all, map[string]any{
			"name": f.Name, "type": f.Type.String(), "nullable": f.Nullable, "metadata": f.Metadata.ToMap(), "children": children,
		})
	}
	return all
}

// hostView has the common methods of arrow-go's arrays and record batches.
type hostView interface {
	Release()
	MarshalJSON() ([]byte, error)
}

// viewOf returns an owned host view of an array or a batch.
func viewOf(ctx context.Context, v any) (hostView, error) {
	view, err := either(v,
		func(a *cdevice.Array) (arrow.Array, error) { return a.HostView(ctx) },
		func(b *cdevice.RecordBatch) (arrow.RecordBatch, error) { return b.HostView(ctx) })
	if err != nil {
		return nil, err
	}
	return view.(hostView), nil
}

// values returns the elements, or the rows, in arrow-go's JSON.
func values(ctx context.Context, v any) (string, error) {
	view, err := viewOf(ctx, v)
	if err != nil {
		return "", err
	}
	defer view.Release()
	text, err := view.MarshalJSON()
	return string(text), err
}

// buffers returns the addresses of a host view's buffers: one tree for an array, a list of trees for a batch. Where there is
// no buffer, as for most types without nulls, the address is 0.
func buffers(ctx context.Context, v any) (any, error) {
	view, err := viewOf(ctx, v)
	if err != nil {
		return nil, err
	}
	defer view.Release()
	if arr, ok := view.(arrow.Array); ok {
		return buffersOf(arr.Data()), nil
	}
	columns := []any{}
	for _, column := range view.(arrow.RecordBatch).Columns() {
		columns = append(columns, buffersOf(column.Data()))
	}
	return columns, nil
}

func buffersOf(data arrow.ArrayData) map[string]any {
	places, children := []any{}, []any{}
	for _, b := range data.Buffers() {
		places = append(places, place(b))
	}
	for _, child := range data.Children() {
		children = append(children, buffersOf(child))
	}
	tree := map[string]any{"length": data.Len(), "nulls": nullsOf(data), "buffers": places, "children": children, "dictionary": nil}
	if d, ok := data.Dictionary().(*array.Data); ok && d != nil {
		tree["dictionary"] = buffersOf(d)
	}
	return tree
}

// nullsOf counts in an array of its own, since the first count of one that others use writes to it.
func nullsOf(data arrow.ArrayData) int {
	own := data.(*array.Data).Copy()
	defer own.Release()
	arr := array.MakeFromData(own)
	defer arr.Release()
	return arr.NullN()
}

// place is where a buffer is, and how many bytes the elements need.
func place(b *memory.Buffer) map[string]any {
	if b == nil {
		return map[string]any{"address": 0, "size": 0}
	}
	return map[string]any{"address": int64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes())))), "size": b.Len()}
}

// difference returns the difference between two arrays or two batches, or an empty text.
func difference(ctx context.Context, left, right any) (string, error) {
	l, err := viewOf(ctx, left)
	if err != nil {
		return "", err
	}
	defer l.Release()
	r, err := viewOf(ctx, right)
	if err != nil {
		return "", err
	}
	defer r.Release()
	switch l := l.(type) {
	case arrow.Array:
		if r, ok := r.(arrow.Array); ok {
			return arrayDifference(l, r), nil
		}
	case arrow.RecordBatch:
		if r, ok := r.(arrow.RecordBatch); ok {
			return batchDifference(l, r), nil
		}
	}
	return fmt.Sprintf("kind: %T, %T", l, r), nil
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
