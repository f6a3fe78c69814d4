package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

func TestHostViewOfAWrappedBatchIsTheBatch(t *testing.T) {
	rec := twoColumns(t)
	b := wrap(t, rec)
	assert.Same(t, rec, viewOf(t, b))
	column := kept(cdevice.WrapArray(rec.Column(0), device.CPUDevice()))(t)
	assert.Same(t, rec.Column(0), kept(column.HostView(background))(t))
}

// The metadata of a record batch that is wrapped goes with its copies and views, and not with another's. The second schema
// has a type that is wrapped by way of its nodes.
func TestMetadataOfAWrappedBatch(t *testing.T) {
	checkLeaks(t)
	pinned := cudatest.One(t, cudasim.Options{}).GPUs[0].Pinned()
	md, other := arrow.NewMetadata([]string{"k"}, []string{"v"}), arrow.NewMetadata([]string{"l"}, []string{"w"})
	of := func(rec arrow.RecordBatch) arrow.Metadata { return rec.(arrow.RecordBatchWithMetadata).Metadata() }
	for _, dt := range []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int8)} {
		column := fromJSON(t, dt, `[1,1,2]`)
		schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: dt, Nullable: true}}, nil)
		rec := array.NewRecordBatchWithMetadata(schema, []arrow.Array{column}, 3, md)
		defer rec.Release()
		b := wrap(t, rec)
		assert.Equal(t, md, b.Metadata())
		copied := kept(b.CopyToHost(background, nil))(t)
		assert.Equal(t, md, of(copied))
		for _, dev := range []device.Device{device.CPUDevice(), pinned} {
			there := kept(b.CopyTo(background, dev))(t)
			assert.Equal(t, md, there.Metadata())
			view := viewOf(t, there)
			assert.Equal(t, md, of(view))
			part := view.NewSlice(1, 2)
			defer part.Release()
			assert.Equal(t, md, of(part), "as of arrow-go's own record batches")
		}
		assert.Same(t, rec, viewOf(t, b))
		changed := b.WithMetadata(other)
		defer changed.Release()
		assert.Equal(t, other, of(viewOf(t, changed)))
		assert.True(t, array.RecordEqual(rec, viewOf(t, changed)))
		none := b.WithMetadata(arrow.Metadata{})
		defer none.Release()
		assert.Zero(t, of(viewOf(t, none)).Len())
		assert.Equal(t, md, b.Metadata(), "the batch is immutable")
	}
}

func TestSliceIsTheSameAsArrowGosSlice(t *testing.T) {
	rec := twoColumns(t)
	b := wrap(t, rec)
	for i := int64(0); i <= 5; i++ {
		for j := i; j <= 5; j++ {
			part, err := b.Slice(i, j)
			require.NoError(t, err)
			want := rec.NewSlice(i, j)
			assert.True(t, array.RecordEqual(want, viewOf(t, part)), "[%d, %d)", i, j)
			assert.Equal(t, j-i, part.NumRows())
			want.Release()
			part.Release()
		}
	}
}

func TestSliceOutOfRangeIsAnError(t *testing.T) {
	b := wrap(t, twoColumns(t))
	column := b.Column(0)
	defer column.Release()
	for _, r := range [][2]int64{{-1, 2}, {3, 2}, {0, 6}, {6, 6}} {
		_, err := b.Slice(r[0], r[1])
		assert.ErrorIs(t, err, arrow.ErrInvalid, r)
		_, err = column.Slice(r[0], r[1])
		assert.ErrorIs(t, err, arrow.ErrInvalid, r)
	}
}

func TestSelectTakesColumnsInOrder(t *testing.T) {
	rec := twoColumns(t)
	picked := kept(wrap(t, rec).Select(1, 0, 1))(t)
	view := viewOf(t, picked)
	require.EqualValues(t, 3, view.NumCols())
	for i, want := range []int{1, 0, 1} {
		assert.True(t, array.Equal(rec.Column(want), view.Column(i)))
		assert.True(t, rec.Schema().Field(want).Equal(view.Schema().Field(i)))
	}
	assert.True(t, rec.Schema().Metadata().Equal(view.Schema().Metadata()))

	none := kept(picked.Select())(t)
	assert.EqualValues(t, 5, none.NumRows(), "a batch without columns keeps its rows")

	_, err := picked.Select(0, 3)
	assert.ErrorContains(t, err, "cdevice: select: indices[1] = 3, want 0 to 2")
	_, err = picked.Select(-1)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}

func TestColumnKeepsItsField(t *testing.T) {
	rec := twoColumns(t)
	column := wrap(t, rec).Column(1)
	defer column.Release()
	assert.True(t, column.Field().Equal(rec.Schema().Field(1)))
	back := throughC(t, column)
	defer back.Release()
	assert.True(t, back.Field().Equal(rec.Schema().Field(1)), "name, nullability and metadata travel")
	assert.EqualValues(t, 5, back.Len())
	assert.EqualValues(t, 1, back.NullCount())
}

func TestSlicedExportsKeepTheBuffers(t *testing.T) {
	b := wrap(t, twoColumns(t))
	part := kept(b.Slice(2, 4))(t)
	var whole, cut cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportRecordBatch(b, &whole, nil))
	defer cdevice.ReleaseStruct(&whole)
	require.NoError(t, cdevice.ExportRecordBatch(part, &cut, nil))
	defer cdevice.ReleaseStruct(&cut)
	assert.Zero(t, cut.Array.Offset, "the root of a record batch has no offset")
	assert.EqualValues(t, 2, cut.Array.Length)
	assert.EqualValues(t, 1, cut.Array.NBuffers)
	assert.Zero(t, *abi.At[uintptr](cut.Array.Buffers))
	for i, addr := range children(abi.As[abi.ArrowArray](&cut.Array)) {
		column := abi.At[abi.ArrowArray](addr)
		of := abi.At[abi.ArrowArray](children(abi.As[abi.ArrowArray](&whole.Array))[i])
		assert.EqualValues(t, 2, column.Offset)
		assert.EqualValues(t, 2, column.Length)
		assert.EqualValues(t, -1, column.NullCount, "not counted")
		n := int(column.NBuffers)
		assert.Equal(t, abi.Slice[uintptr](of.Buffers, n), abi.Slice[uintptr](column.Buffers, n), "zero copy")
	}
}

// A struct child may be longer than the struct; a column is as long as the batch.
func TestLongChildIsCutToTheBatch(t *testing.T) {
	checkLeaks(t)
	tree := cpeer.NewTree(cpeer.Node{Length: 2, Buffers: []uintptr{0}, Children: []cpeer.Node{{Length: 4, Buffers: []uintptr{0, bridge.Zeros}}}})
	t.Cleanup(tree.Free)
	in := new(cdevice.CArrowDeviceArray)
	tree.Export(abi.As[abi.ArrowDeviceArray](in))
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := kept(cdevice.ImportRecordBatchWithSchema(in, schema))(t)
	view := kept(b.HostView(context.Background()))(t)
	assert.Equal(t, `[0,0]`, marshal(t, view.Column(0)))
}

func TestWrapCutsLongColumnsToTheBatch(t *testing.T) {
	long := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3,4]`)
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: long.DataType()}}, nil), []arrow.Array{long}, 2)
	defer rec.Release()
	column := wrap(t, rec).Column(0)
	defer column.Release()
	assert.EqualValues(t, 2, column.Len())
}

// dirty is an allocator whose memory is not zero.
type dirty struct{ memory.Allocator }

func (d dirty) Allocate(size int) []byte {
	b := d.Allocator.Allocate(size)
	for i := range b {
		b[i] = 0xa5
	}
	return b
}

// Copies do not show old contents of the allocator's memory: not in values, not in the slots of
// nulls, not in the padding.
func TestCopyIntoDirtyMemory(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()
		back := throughC(t, a)
		defer back.Release()
		clean, err := back.CopyToHost(context.Background(), memory.NewGoAllocator())
		require.NoError(t, err)
		defer clean.Release()
		soiled, err := back.CopyToHost(context.Background(), dirty{memory.NewGoAllocator()})
		require.NoError(t, err)
		defer soiled.Release()
		assert.Equal(t, allBytes(clean.Data()), allBytes(soiled.Data()))
	})
}

// allBytes are the buffers of data and all below it, padding included.
func allBytes(data arrow.ArrayData) (out [][]byte) {
	for _, buf := range data.Buffers() {
		if buf != nil {
			out = append(out, buf.Buf())
		}
	}
	for _, child := range data.Children() {
		out = append(out, allBytes(child)...)
	}
	if d, _ := data.Dictionary().(*array.Data); d != nil {
		out = append(out, allBytes(d)...)
	}
	return out
}

func TestCopyOfRunsIsCutToThem(t *testing.T) {
	arr := fromJSON(t, arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32), `[1,1,1,2,2,3,3,3]`)
	a := kept(cdevice.WrapArray(arr, device.CPUDevice()))(t)
	part := kept(a.Slice(2, 6))(t)
	copied := kept(part.CopyToHost(context.Background(), nil))(t)
	runs := copied.(*array.RunEndEncoded)
	assert.Equal(t, `[1,3,4]`, marshal(t, runs.RunEndsArr()))
	assert.Equal(t, `[1,2,3]`, marshal(t, runs.Values()))
}

func TestCopySharesNothing(t *testing.T) {
	rec := twoColumns(t)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	copied, err := wrap(t, rec).CopyToHost(context.Background(), mem)
	require.NoError(t, err)
	defer copied.Release()
	assert.True(t, array.RecordEqual(rec, copied))
	for i := range 2 {
		for k, buf := range copied.Column(i).Data().Buffers() {
			from := rec.Column(i).Data().Buffers()[k]
			assert.NotSame(t, &from.Bytes()[0], &buf.Bytes()[0])
		}
	}
}
