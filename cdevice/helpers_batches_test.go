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
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
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

// kept returns the result of a call that must not fail, and releases it at the end of the test:
// kept(b.Slice(1, 2))(t).
func kept[T interface{ Release() }](item T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(item.Release)
		return item
	}
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

// through exports a to a struct and imports it again, schema and all.
func (k kind) through(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	out, schema := k.newArray(), garbageSchema()
	require.NoError(t, out.exportArray(a, schema))
	back, err := out.importArray(schema, opts...)
	require.NoError(t, err)
	assert.Zero(t, out.members().Release, "it was moved")
	return back
}

// throughC is kind.through a device struct.
func throughC(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	return deviceKind.through(t, a, opts...)
}

// exportMade exports the result of a method of a batch or an array, and releases it:
// exportMade(out, schema)(b.WithEvent(s)).
func exportMade[A cdevice.ArrayStruct](out *A, schema *cdata.CArrowSchema) func(interface{ Release() }, error) error {
	return func(made interface{ Release() }, err error) error {
		if err != nil {
			return err
		}
		defer made.Release()
		if a, ok := made.(*cdevice.Array); ok {
			return cdevice.ExportArray(a, out, schema)
		}
		return cdevice.ExportRecordBatch(made.(*cdevice.RecordBatch), out, schema)
	}
}

// passOn exports i and imports it again, without looking inside.
func passOn(t testing.TB, i imported) {
	t.Helper()
	out, schema := garbageArray(), garbageSchema()
	var again imported
	var err error
	if b, ok := i.(*cdevice.RecordBatch); ok {
		require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
		again, err = orNil(cdevice.ImportRecordBatch(out, schema))
	} else {
		require.NoError(t, cdevice.ExportArray(i.(*cdevice.Array), out, schema))
		again, err = orNil(cdevice.ImportArray(out, schema))
	}
	require.NoError(t, err)
	assert.Equal(t, i.DeviceID(), again.DeviceID())
	assert.Equal(t, i.String(), again.String())
	again.Release()
}

// exportOnly exports i to out, without a schema.
func exportOnly(t *testing.T, i imported, out *cdevice.CArrowDeviceArray) {
	t.Helper()
	if b, ok := i.(*cdevice.RecordBatch); ok {
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	} else {
		require.NoError(t, cdevice.ExportArray(i.(*cdevice.Array), out, nil))
	}
}

// assertEqualArrays compares types, values and null counts of two arrays.
func assertEqualArrays(t *testing.T, want, got arrow.Array) {
	t.Helper()
	require.Equal(t, want.Len(), got.Len())
	assert.True(t, array.Equal(want, got), "want %v\n got %v", want, got)
	assert.Equal(t, want.NullN(), got.NullN(), "null count")
	if want.Len() == 0 {
		return // arrow-go prints some empty arrays as null, others as []
	}
	wantJSON, err := want.MarshalJSON()
	require.NoError(t, err)
	gotJSON, err := got.MarshalJSON()
	require.NoError(t, err)
	assert.JSONEq(t, string(wantJSON), string(gotJSON))
}

// toHost copies a to memory of a checked allocator and compares it with want.
func sameOnHost(t *testing.T, want arrow.Array, a *cdevice.Array) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	got, err := a.CopyToHost(background, mem)
	require.NoError(t, err)
	defer got.Release()
	assert.Zero(t, got.Data().Offset())
	assert.True(t, array.Equal(want, got), "want %v\ngot  %v", want, got)
	require.NoError(t, validate(got))
}

// sameBatchOnHost copies b to the host and compares it with want.
func sameBatchOnHost(t *testing.T, want arrow.RecordBatch, b *cdevice.RecordBatch, opts ...cdevice.CopyOption) {
	t.Helper()
	got, err := b.CopyToHost(background, nil, opts...)
	require.NoError(t, err)
	assert.True(t, array.RecordEqual(want, got), "want %v\ngot  %v", want, got)
	got.Release()
}

// sameRecord compares the rows of a batch with those of rec.
func sameRecord(t *testing.T, rec arrow.RecordBatch, b *cdevice.RecordBatch) bool {
	t.Helper()
	host, err := b.CopyToHost(background, nil)
	require.NoError(t, err)
	defer host.Release()
	return array.RecordEqual(rec, host)
}

// readFrom returns a copy of device memory.
func readFrom(t *testing.T, gpu *cudaalloc.Device, addr uintptr, size int64) []byte {
	host, err := gpu.AllocateHost(background, size)
	require.NoError(t, err)
	defer func() { require.NoError(t, host.Free(nil)) }()
	s, err := gpu.CopyStream()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: device.Ptr(addr), Size: size}}, s))
	require.NoError(t, s.Synchronize(background))
	return append([]byte(nil), abi.Slice[byte](uintptr(host.Ptr()), int(size))...)
}

// isClosed asserts that a reader ends with the error of one that was closed.
func isClosed(t testing.TB, r *cdevice.RecordReader) {
	t.Helper()
	assert.ErrorIs(t, r.Err(), cdevice.ErrReleased, "before it is asked")
	assert.False(t, r.Next())
	assert.EqualError(t, r.Err(), "cdevice: read: reader: closed: invalid: already released")
	n, err := numbersOf(t, r.All())
	assert.Empty(t, n)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
}
