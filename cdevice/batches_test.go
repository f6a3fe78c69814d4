package cdevice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// background is the context of calls that no test ends.
var background = context.Background()

// wrap is rec as a batch of the CPU, which is released at the end of the test.
func wrap(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordBatch {
	t.Helper()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(b.Release)
	return b
}

// oneColumn is a record batch with arr as its only column; released at the end.
func oneColumn(t *testing.T, arr arrow.Array) arrow.RecordBatch {
	t.Helper()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil), []arrow.Array{arr}, int64(arr.Len()))
	t.Cleanup(rec.Release)
	return rec
}

// twoColumns is released at the end of the test.
func twoColumns(t *testing.T) arrow.RecordBatch {
	t.Helper()
	metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "i", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true, Metadata: metadata},
	}, &metadata)
	rec := array.NewRecordBatch(schema, []arrow.Array{
		fromJSON(t, schema.Field(0).Type, `[0,1,null,3,4]`),
		fromJSON(t, schema.Field(1).Type, `["a","b","c",null,"e"]`),
	}, 5)
	t.Cleanup(rec.Release)
	return rec
}

// wide is a batch of n int64 columns, and the same as a C program has it.
func wide(t testing.TB, n int) (arrow.RecordBatch, cpeer.Tree) {
	t.Helper()
	builder := array.NewInt64Builder(memory.NewGoAllocator())
	defer builder.Release()
	builder.AppendValues([]int64{1, 2, 3}, nil)
	column := builder.NewArray()
	defer column.Release()
	fields, columns := make([]arrow.Field, n), make([]arrow.Array, n)
	root := cpeer.Node{Length: 3, Buffers: []uintptr{0}}
	for i := range n {
		fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: column.DataType(), Nullable: true}
		columns[i] = column
		root.Children = append(root.Children, cpeer.Node{Length: 3, Buffers: []uintptr{0, bridge.Zeros}})
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 3)
	tree := cpeer.NewTree(root)
	t.Cleanup(rec.Release)
	t.Cleanup(tree.Free)
	return rec, tree
}

// columnsOf is a record batch of int64 columns, or of text, of so many rows.
func columnsOf(mem memory.Allocator, columns, rows int, text bool) arrow.RecordBatch {
	var fields []arrow.Field
	var arrays []arrow.Array
	for c := range columns {
		var b array.Builder = array.NewInt64Builder(mem)
		if text {
			b = array.NewStringBuilder(mem)
		}
		for r := range rows {
			switch b := b.(type) {
			case *array.StringBuilder:
				b.Append(fmt.Sprint("row ", r*c))
			case *array.Int64Builder:
				b.Append(int64(r * c))
			}
		}
		arrays = append(arrays, b.NewArray())
		b.Release()
		fields = append(fields, arrow.Field{Name: fmt.Sprint(c), Type: arrays[c].DataType(), Nullable: true})
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(rows))
	for _, a := range arrays {
		a.Release()
	}
	return rec
}

// outsideTheHeap is twoColumns in memory of C's: cdata exports no pinned Go memory.
func outsideTheHeap(t *testing.T) arrow.RecordBatch {
	t.Helper()
	rec := columnsOf(mallocator.NewMallocator(), 2, 40, true)
	t.Cleanup(rec.Release)
	return rec
}

// offHeap is memory that Go need not pin.
var offHeap = mallocator.NewMallocator()

// ownedBatch returns a batch without rows whose release calls a function.
func ownedBatch(t *testing.T, release func()) *cdevice.RecordBatch {
	t.Helper()
	b, err := cdevice.NewRecordBatch(device.CPUDevice(), arrow.NewSchema(nil, nil), 0, nil, cdevice.Lifetime{Release: release})
	require.NoError(t, err)
	return b
}

// made returns the result of a method of a reader or a batch, and releases the receiver: made(t,
// r)(r.AsCPU(ctx)).
func made[T interface{ Release() }](t testing.TB, from T) func(T, error) T {
	return func(item T, err error) T {
		t.Helper()
		require.NoError(t, err)
		from.Release()
		return item
	}
}

// numbers is a column of so many bytes, zero each.
func numbers(t *testing.T, bytes int) arrow.Array {
	t.Helper()
	values := memory.NewBufferBytes(make([]byte, bytes))
	data := array.NewData(arrow.PrimitiveTypes.Int64, bytes/8, []*memory.Buffer{nil, values}, nil, 0, 0)
	a := array.MakeFromData(data)
	data.Release()
	t.Cleanup(a.Release)
	return a
}

// fromJSON builds an array; it is released at the end of the test.
func fromJSON(t *testing.T, dt arrow.DataType, text string) arrow.Array {
	t.Helper()
	arr, _, err := array.FromJSON(memory.NewGoAllocator(), dt, strings.NewReader(text))
	require.NoError(t, err)
	t.Cleanup(arr.Release)
	return arr
}

// marshal is an array as compact JSON.
func marshal(t *testing.T, arr arrow.Array) string {
	t.Helper()
	text, err := arr.MarshalJSON()
	require.NoError(t, err)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, text))
	return compact.String()
}

// pointType is a struct of a number and a text.
var pointType = arrow.StructOf(
	arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	arrow.Field{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true})

// viewOf is the batch as arrow-go has it; it is released at the end of the test.
func viewOf(t *testing.T, b *cdevice.RecordBatch) arrow.RecordBatch {
	t.Helper()
	view, err := b.HostView(context.Background())
	require.NoError(t, err)
	t.Cleanup(view.Release)
	return view
}

// dataOnly is an array with other data than its own.
type dataOnly struct {
	arrow.Array
	data arrow.ArrayData
}

func (d dataOnly) Data() arrow.ArrayData { return d.data }
