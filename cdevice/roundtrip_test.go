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
	"github.com/arrowdevice/arrowdevice/device"
)

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
