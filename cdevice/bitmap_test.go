package cdevice_test

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// exportedArray is what a C struct says of an array.
type exportedArray struct {
	Length, Nulls, Offset int64
	Buffers               []uintptr // without the sizes of a view type, which each wrapped array has of its own
	Below                 []exportedArray
}

func readExported(a *abi.ArrowArray, dt arrow.DataType) exportedArray {
	st, l := layout.Of(dt)
	e := exportedArray{a.Length, a.NullCount, a.Offset, slices.Clone(abi.Slice[uintptr](a.Buffers, int(a.NBuffers))), nil}
	if l.Kind == layout.View {
		e.Buffers = e.Buffers[:len(e.Buffers)-1]
	}
	below := children(a)
	if l.Kind == layout.Dictionary {
		below = []uintptr{a.Dictionary}
	}
	for i, c := range below {
		e.Below = append(e.Below, readExported(abi.At[abi.ArrowArray](c), layout.ChildType(st, i)))
	}
	return e
}

// exportedColumn exports a batch, and returns its only column as the structs have it.
func exportedColumn(t *testing.T, b *cdevice.RecordBatch) exportedArray {
	t.Helper()
	out := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	defer cdevice.ReleaseStruct(out)
	root := abi.As[abi.ArrowDeviceArray](out).Array
	return readExported(abi.At[abi.ArrowArray](children(&root)[0]), b.Schema().Field(0).Type)
}

// exportedAlone exports an array, and returns it as the struct has it.
func exportedAlone(t *testing.T, a *cdevice.Array) exportedArray {
	t.Helper()
	out := garbageArray()
	require.NoError(t, cdevice.ExportArray(a, out, nil))
	defer cdevice.ReleaseStruct(out)
	return readExported(&abi.As[abi.ArrowDeviceArray](out).Array, a.Field().Type)
}

// checkBitmaps checks that the struct has the bitmaps of the arrays that are not known to be without
// nulls, and no others, and that memory of all buffers is pinned.
func checkBitmaps(t *testing.T, e exportedArray, data arrow.ArrayData) {
	t.Helper()
	if _, l := layout.Of(data.DataType()); l.Validity {
		given := data.Buffers()[0]
		want := data.NullN() != 0 && given != nil && given.Len() > 0
		assert.Equal(t, want, e.Buffers[0] != 0, "a bitmap of %s with null count %d", data.DataType(), data.NullN())
		if want {
			assert.EqualValues(t, data.NullN(), e.Nulls)
		} else {
			assert.Zero(t, e.Nulls)
		}
	}
	for i, addr := range e.Buffers {
		assert.True(t, cpeer.IsPinned(addr), "buffer %d", i)
	}
	below := data.Children()
	if d, ok := data.Dictionary().(*array.Data); ok && d != nil {
		below = []arrow.ArrayData{d}
	}
	require.Len(t, e.Below, len(below))
	for i := range below {
		checkBitmaps(t, e.Below[i], below[i])
	}
}

// However an array is wrapped and exported, its structs have the same null counts and buffers: a
// bitmap unless the array is known to have no nulls.
func TestBitmapsOfEachExport(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil), []arrow.Array{arr}, int64(arr.Len()))
		defer rec.Release()
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		defer b.Release()
		want := exportedColumn(t, b)
		checkBitmaps(t, want, arr.Data())
		assert.Equal(t, want, exportedColumn(t, b), "again")

		var plain cdata.CArrowArray
		require.NoError(t, cdevice.ExportRecordBatch(b, &plain, nil))
		assert.Equal(t, want, readExported(abi.At[abi.ArrowArray](children(plainArray(&plain))[0]), arr.DataType()), "plain")
		cdevice.ReleaseStruct(&plain)

		withNodes, err := b.Select(0)
		require.NoError(t, err)
		defer withNodes.Release()
		assert.Equal(t, want, exportedColumn(t, withNodes), "with nodes")

		withNulls := arrow.NewSchema([]arrow.Field{rec.Schema().Field(0), {Name: "n", Type: arrow.Null}}, nil)
		nulls := array.NewNull(arr.Len())
		defer nulls.Release()
		two := array.NewRecordBatch(withNulls, []arrow.Array{arr, nulls}, int64(arr.Len()))
		defer two.Release()
		slow, err := cdevice.WrapRecordBatch(two, device.CPUDevice()) // a column of nulls is not simple
		require.NoError(t, err)
		defer slow.Release()
		assert.Equal(t, want, exportedColumn(t, slow), "wrapped with nodes")

		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()
		assert.Equal(t, want, exportedAlone(t, a), "array")
		column := b.Column(0)
		defer column.Release()
		assert.Equal(t, want, exportedAlone(t, column), "column")
	})
}

// A bitmap that is not exported is not pinned.
func TestBitmapsThatAreLeftOutAreNotPinned(t *testing.T) {
	rec, _ := wide(t, 1)
	buffers := rec.Column(0).Data().Buffers()
	for name, whole := range map[string]*cdevice.RecordBatch{"columns": wrap(t, rec), "nodes": wrap(t, otherColumns{rec})} {
		assert.False(t, cpeer.IsPinned(addressOf(&buffers[0].Bytes()[0])), name)
		assert.True(t, cpeer.IsPinned(addressOf(&buffers[1].Bytes()[0])), name)
		assert.Zero(t, exportedColumn(t, whole).Buffers[0], name)
	}
}

// otherColumns is a record batch whose array data is not arrow-go's own.
type otherColumns struct{ arrow.RecordBatch }

func (o otherColumns) Columns() []arrow.Array {
	return []arrow.Array{otherArray{o.RecordBatch.Column(0)}}
}

type otherArray struct{ arrow.Array }

func (o otherArray) Data() arrow.ArrayData { return otherData{o.Array.Data()} }

type otherData struct{ arrow.ArrayData }

// uncounted has arrays around one with a bitmap and without nulls, which were not counted.
var uncounted = []struct {
	name string
	of   func(inner *array.Data) *array.Data
}{
	{"column", func(inner *array.Data) *array.Data { return inner.Copy() }},
	{"struct", func(inner *array.Data) *array.Data {
		return around(inner, arrow.StructOf(arrow.Field{Name: "a", Type: inner.DataType(), Nullable: true}))
	}},
	{"fixed list", func(inner *array.Data) *array.Data { return around(inner, arrow.FixedSizeListOf(1, inner.DataType())) }},
	{"list", func(inner *array.Data) *array.Data {
		return around(inner, arrow.ListOf(inner.DataType()), 0, 1, 2)
	}},
	{"list of lists", func(inner *array.Data) *array.Data {
		list := around(inner, arrow.ListOf(inner.DataType()), 0, 1, 2)
		defer list.Release()
		return around(list, arrow.ListOf(list.DataType()), 0, 1, 2)
	}},
	{"indices", func(inner *array.Data) *array.Data {
		return array.NewDataWithDictionary(indices, 2, inner.Buffers(), array.UnknownNullCount, 0, inner)
	}},
	{"dictionary", func(inner *array.Data) *array.Data {
		return array.NewDataWithDictionary(indices, 2, []*memory.Buffer{nil, inner.Buffers()[1]}, 0, 0, inner)
	}},
}

var indices = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int64, ValueType: arrow.PrimitiveTypes.Int64}

// around is an array of two elements with one child, and offsets if there are any.
func around(child *array.Data, dt arrow.DataType, offsets ...int32) *array.Data {
	buffers := []*memory.Buffer{nil}
	if offsets != nil {
		buffers = append(buffers, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)))
	}
	return array.NewData(dt, 2, buffers, []arrow.ArrayData{child}, 0, 0)
}

// countNulls counts the nulls of all arrays of a tree, as arrow-go does when they are asked for.
func countNulls(data arrow.ArrayData) {
	arr := array.MakeFromData(data)
	defer arr.Release()
	arr.NullN()
	for _, child := range data.Children() {
		countNulls(child)
	}
	if d, ok := data.Dictionary().(*array.Data); ok && d != nil {
		countNulls(d)
	}
}

// Nulls that arrow-go counts when an array was wrapped do not change its exports: before, while and
// after they are counted, the bitmap is there, and the count is unknown.
func TestNullsThatAreCountedLater(t *testing.T) {
	for _, row := range uncounted {
		t.Run(row.name, func(t *testing.T) {
			checkLeaks(t)
			slice := array.NewSlice(fromJSON(t, arrow.PrimitiveTypes.Int64, `[0, 1, null]`), 0, 2)
			t.Cleanup(slice.Release)
			require.Equal(t, array.UnknownNullCount, slice.Data().NullN())
			data := row.of(slice.Data().(*array.Data))
			arr := array.MakeFromData(data)
			data.Release()
			defer arr.Release()
			b := wrap(t, oneColumn(t, arr))

			held := garbageArray() // so that the exports fill blocks of their own
			require.NoError(t, cdevice.ExportRecordBatch(b, held, nil))
			defer cdevice.ReleaseStruct(held)
			before := exportedColumn(t, b)
			checkBitmaps(t, before, arr.Data())

			counted := make(chan struct{})
			go func() {
				defer close(counted)
				countNulls(arr.Data())
			}()
			assert.Equal(t, before, exportedColumn(t, b), "while they are counted")
			<-counted
			assert.Equal(t, before, exportedColumn(t, b), "after they were counted")
			cdevice.ReleaseStruct(held)
			assert.Equal(t, before, exportedColumn(t, b), "in memory of an export before")
		})
	}
}
