package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Structs of the C data interface, without a device.

// garbagePlain is a consumer's struct, which may hold anything before an export.
func garbagePlain() *cdata.CArrowArray {
	const g = 0xdeadbeef
	a := &abi.ArrowArray{Length: -7, NullCount: -7, Offset: -7, NBuffers: -7, NChildren: -7, Buffers: g, Children: g, Dictionary: g, Release: g, PrivateData: g}
	return cdevice.ArrayFromPtr(addressOf(a))
}

// throughPlain exports an array to a plain struct and imports it again, schema and all.
func throughPlain(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	out, schema := garbagePlain(), garbageSchema()
	require.NoError(t, cdevice.ExportPlainArray(background, a, out, schema))
	back, err := cdevice.ImportPlainArray(out, schema, opts...)
	require.NoError(t, err)
	assert.Zero(t, plainArray(out).Release, "it was moved")
	return back
}

func TestPlainArrayRoundTripIsEqual(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		a, err := cdevice.WrapArray(arr, device.Host())
		require.NoError(t, err)
		defer a.Release()
		back := throughPlain(t, a, cdevice.WithFullValidation(background))
		defer back.Release()
		assert.True(t, arrow.TypeEqual(arr.DataType(), back.DataType(), arrow.CheckMetadata()))
		assert.Equal(t, device.Host().ID(), back.DeviceID())
		sameOnHost(t, arr, back)
	})
}

func TestPlainRecordBatchRoundTripIsEqual(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
		schema := arrow.NewSchema([]arrow.Field{
			{Name: "a", Type: arr.DataType(), Nullable: true, Metadata: metadata},
			{Name: "b", Type: arr.DataType(), Nullable: true},
		}, &metadata)
		rec := array.NewRecordBatch(schema, []arrow.Array{arr, arr}, int64(arr.Len()))
		defer rec.Release()
		b, err := cdevice.Wrap(rec, device.Host())
		require.NoError(t, err)
		defer b.Release()

		out, outSchema := garbagePlain(), garbageSchema()
		require.NoError(t, cdevice.ExportPlainRecordBatch(background, b, out, outSchema))
		back, err := cdevice.ImportPlainRecordBatch(out, outSchema, cdevice.WithFullValidation(background))
		require.NoError(t, err)
		defer back.Release()
		assert.True(t, schema.Equal(back.Schema()), "want %s\n got %s", schema, back.Schema())
		assert.True(t, schema.Metadata().Equal(back.Schema().Metadata()))
		view, err := back.HostView(background)
		require.NoError(t, err)
		defer view.Release()
		require.EqualValues(t, arr.Len(), view.NumRows())
		assertEqualArrays(t, arr, view.Column(0))
		assertEqualArrays(t, arr, view.Column(1))
	})
}
