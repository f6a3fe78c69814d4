package cdevice_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// eachCase runs body for every type of arrow-go in every variant, with an array
// whose memory is checked to be free afterwards.
func eachCase(t *testing.T, body func(t *testing.T, arr arrow.Array)) {
	t.Helper()
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				checkLeaks(t)
				mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
				defer mem.AssertSize(t, 0)
				arr, err := c.Array(mem, v)
				require.NoError(t, err)
				defer arr.Release()
				body(t, arr)
			})
		}
	}
}

// checkLeaks fails the test if it ends with more alive than it began with.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := cdevice.ReadStats()
	t.Cleanup(func() {
		// What ends on goroutines: readers that were released early, copies after the work of
		// their device. All else is over when a test is.
		last := func(s cdevice.Stats) [3]int64 { return [3]int64{s.Readers, s.DeviceCopies, s.Goroutines} }
		more := left(before)
		for deadline := time.Now().Add(10 * time.Second); last(more) != [3]int64{} && time.Now().Before(deadline); {
			runtime.Gosched()
			more = left(before)
		}
		assert.Zero(t, more, "something is not released")
	})
}

// throughC exports a and imports it again, schema and all.
func throughC(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(a, out, schema))
	back, err := cdevice.ImportArray(out, schema, opts...)
	require.NoError(t, err)
	return back
}

// The caller's structs may hold anything before an export.
func garbageArray() *cdevice.CArrowDeviceArray {
	out := new(cdevice.CArrowDeviceArray)
	out.Array.Buffers, out.Array.Children, out.Array.Dictionary, out.Array.Release = 0xdead, 0xdead, 0xdead, 0xdead
	out.DeviceID, out.DeviceType, out.SyncEvent, out.Reserved = 77, 77, 0xdead, [3]int64{1, 2, 3}
	return out
}

func garbageSchema() *cdata.CArrowSchema { return new(cdata.CArrowSchema) }

func TestArrayRoundTripIsEqual(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()
		back := throughC(t, a)
		require.NoError(t, back.ValidateFull(background))
		defer back.Release()
		assert.True(t, arrow.TypeEqual(arr.DataType(), back.DataType(), arrow.CheckMetadata()))
		view, err := back.HostView(context.Background())
		require.NoError(t, err)
		defer view.Release()
		assertEqualArrays(t, arr, view)
	})
}

func TestArrayCopyToHostIsEqual(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()
		back := throughC(t, a)
		defer back.Release()
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		defer mem.AssertSize(t, 0)
		copied, err := back.CopyToHost(context.Background(), mem)
		require.NoError(t, err)
		defer copied.Release()
		assertEqualArrays(t, arr, copied)
		assert.Zero(t, copied.Data().Offset(), "a copy drops the offset")
	})
}

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

func TestRecordBatchRoundTripIsEqual(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
		schema := arrow.NewSchema([]arrow.Field{
			{Name: "a", Type: arr.DataType(), Nullable: true, Metadata: metadata},
			{Name: "b", Type: arr.DataType(), Nullable: true},
		}, &metadata)
		rec := array.NewRecordBatch(schema, []arrow.Array{arr, arr}, int64(arr.Len()))
		defer rec.Release()
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		defer b.Release()

		out, outSchema := garbageArray(), garbageSchema()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, outSchema))
		assert.EqualValues(t, device.CPU, out.DeviceType)
		assert.EqualValues(t, -1, out.DeviceID)
		assert.Zero(t, out.SyncEvent)
		assert.Zero(t, out.Reserved)
		back, err := validated(cdevice.ImportRecordBatch(out, outSchema))
		require.NoError(t, err)
		defer back.Release()
		assert.True(t, schema.Equal(back.Schema()), "want %s\n got %s", schema, back.Schema())
		assert.True(t, schema.Metadata().Equal(back.Schema().Metadata()))
		view, err := back.HostView(context.Background())
		require.NoError(t, err)
		defer view.Release()
		require.EqualValues(t, arr.Len(), view.NumRows())
		assertEqualArrays(t, arr, view.Column(0))
		assertEqualArrays(t, arr, view.Column(1))
	})
}
