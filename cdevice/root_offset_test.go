package cdevice_test

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// The struct of a record batch may have an offset: rows that come before the batch's in all columns.

// part sets the root of a record batch to rows [i, j).
func (f *foreignArray) part(i, j int64) { f.root.Offset, f.root.Length = i, j-i }

// partsOf are ranges of n rows.
func partsOf(n int64) [][2]int64 {
	if n < 2 {
		return [][2]int64{{0, n}, {n, n}}
	}
	return [][2]int64{{1, n}, {1, n - 1}, {n / 2, n/2 + 1}, {n - 1, n}, {1, 1}, {n, n}}
}

// recordOf is the record batch of f on the host, in memory of arrow-go.
func recordOf(t *testing.T, f *foreignArray) arrow.RecordBatch {
	t.Helper()
	got, err := f.importKnown()
	require.NoError(t, err)
	defer got.Release()
	rec, err := got.(*cdevice.RecordBatch).CopyToHost(background, nil)
	require.NoError(t, err)
	f.restore()
	return rec
}

func TestRootWithAnOffset(t *testing.T) {
	eachForeign(t, cases.Variants, asBatch, func(t *testing.T, f *foreignArray) {
		rec := recordOf(t, f)
		defer rec.Release()
		for _, part := range partsOf(rec.NumRows()) {
			for _, k := range []kind{deviceKind, plainKind} {
				f.restore()
				f.kind = k
				f.part(part[0], part[1])
				b := importedBatch(t, f)
				want := rec.NewSlice(part[0], part[1])
				require.NoError(t, b.ValidateFull(background))
				sameBatchOnHost(t, want, b)
				view, err := b.HostView(background)
				require.NoError(t, err)
				assert.True(t, array.RecordEqual(want, view), "want %v\ngot  %v", want, view)
				view.Release()
				exportsWithoutOffset(t, f, b)
				passOn(t, b)
				if n := b.NumRows(); n > 1 {
					rest, err := b.Slice(1, n)
					require.NoError(t, err)
					cut := want.NewSlice(1, n)
					sameBatchOnHost(t, cut, rest)
					cut.Release()
					rest.Release()
				}
				b.Release()
				want.Release()
			}
		}
	})
}

func importedBatch(t *testing.T, f *foreignArray, opts ...cdevice.ImportOption) *cdevice.RecordBatch {
	t.Helper()
	got, err := f.importKnown(opts...)
	require.NoError(t, err)
	return got.(*cdevice.RecordBatch)
}

// exportsWithoutOffset checks that an export of b has the offset of f's root in its columns, and null counts that
// hold for the part.
func exportsWithoutOffset(t *testing.T, f *foreignArray, b *cdevice.RecordBatch) {
	t.Helper()
	out := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	defer cdevice.ReleaseStruct(out)
	root := abi.As[abi.ArrowArray](&out.Array)
	assert.Zero(t, root.Offset)
	assert.Zero(t, root.NullCount)
	assert.Equal(t, f.root.Length, root.Length)
	for i, addr := range children(root) {
		whole, got := f.root.children[i].good, abi.At[abi.ArrowArray](addr)
		assert.Equal(t, root.Length, got.Length)
		nulls, offset := whole.NullCount, whole.Offset+f.root.Offset
		if got.Length == 0 {
			offset = 0
		}
		switch {
		case got.Length == whole.Length:
		case f.root.children[i].typ.ID() == arrow.NULL:
			nulls = got.Length
		case nulls != 0:
			nulls = -1
		}
		assert.Equal(t, []int64{offset, nulls}, []int64{got.Offset, got.NullCount}, "offset and null_count of column %d", i)
	}
}

// An import of memory of a device reads nothing of it, and a copy reads the rows of the batch.
func TestRootWithAnOffsetOnADevice(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	eachForeign(t, []cases.Variant{cases.Nulls, cases.Sliced}, asBatch, func(t *testing.T, f *foreignArray) {
		rec := recordOf(t, f)
		defer rec.Release()
		n := rec.NumRows()
		f.hide()
		f.device.DeviceType, f.device.DeviceID = int32(device.CUDA), 0
		for _, part := range partsOf(n) {
			f.device.Array.Release = f.goodDevice.Array.Release
			f.part(part[0], part[1])
			hidden := importedBatch(t, f)
			exportsWithoutOffset(t, f, hidden)
			hidden.Release()
		}

		f.restore()
		defer f.upload(t, gpu)()
		for _, part := range partsOf(n) {
			f.device.Array.Release = f.goodDevice.Array.Release
			f.part(part[0], part[1])
			m.Sim.ResetCounters()
			b := importedBatch(t, f, cdevice.WithDevice(gpu))
			exportsWithoutOffset(t, f, b)
			assert.Zero(t, m.Sim.Calls(""))
			want := rec.NewSlice(part[0], part[1])
			require.NoError(t, b.ValidateFull(background))
			sameBatchOnHost(t, want, b)
			want.Release()
			b.Release()
		}
	})
}

// A batch without columns has rows too; of an offset there is nothing to be cut.
func TestRootWithAnOffsetAndNoColumns(t *testing.T) {
	checkLeaks(t)
	rec := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 5)
	defer rec.Release()
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(wrap(t, rec), out, schema))
	out.Array.Offset = 2
	b := kept(cdevice.ImportRecordBatch(out, schema))(t)
	assert.EqualValues(t, 5, b.NumRows())
	require.NoError(t, b.ValidateFull(background))
	passOn(t, b)
}

// The batches of a stream may have offsets of their own.
func TestStreamOfRootsWithOffsets(t *testing.T) {
	rec := twoColumns(t)
	eachKind(t, func(t *testing.T, k kind) {
		b := wrap(t, rec)
		s := k.script(t, b, b, b)
		next := s.getNext
		s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
			code := next(call, out)
			out.Array.Offset = int64(call)
			out.Array.Length -= int64(call)
			return code
		}
		r := s.reader(t)
		for i := range int64(3) {
			require.True(t, r.Next(), fmt.Sprint(r.Err()))
			want := rec.NewSlice(i, rec.NumRows())
			sameBatchOnHost(t, want, r.RecordBatch())
			want.Release()
		}
		assert.False(t, r.Next())
		assert.NoError(t, r.Err())
	})
}
