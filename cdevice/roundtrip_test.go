package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
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
		validThroughout(t, a)
		eachKind(t, func(t *testing.T, k kind) {
			back := k.through(t, a)
			validThroughout(t, back)
			defer back.Release()
			assert.True(t, arrow.TypeEqual(arr.DataType(), back.DataType(), arrow.CheckMetadata()))
			assert.Equal(t, device.CPUDevice().ID(), back.DeviceID())
			sameOnHost(t, arr, back)
		})
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

		eachKind(t, func(t *testing.T, k kind) {
			out, outSchema := k.newArray(), garbageSchema()
			require.NoError(t, out.exportBatch(b, outSchema))
			if d, ok := out.(arrayOf[cdevice.CArrowDeviceArray]); ok {
				assert.EqualValues(t, device.CPU, d.at.DeviceType)
				assert.EqualValues(t, -1, d.at.DeviceID)
				assert.Zero(t, d.at.SyncEvent)
				assert.Zero(t, d.at.Reserved)
			}
			back, err := validated(out.importBatch(outSchema))
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
	})
}

func TestBatchWithoutColumnsKeepsItsRows(t *testing.T) {
	rec := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 7)
	defer rec.Release()
	eachKind(t, func(t *testing.T, k kind) {
		out, schema := k.newArray(), garbageSchema()
		require.NoError(t, out.exportBatch(wrap(t, rec), schema))
		back := kept(out.importBatch(schema))(t)
		assert.EqualValues(t, 7, back.NumRows())
		assert.Zero(t, back.NumCols())
	})
}
