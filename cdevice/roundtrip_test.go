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

// Buffers may be at any address, and exports give the addresses that came in.
func TestBuffersAtOddAddresses(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		odd := array.MakeFromData(atOddAddresses(arr.Data()))
		defer odd.Release()
		a, err := cdevice.WrapArray(odd, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()
		validThroughout(t, a)
		eachKind(t, func(t *testing.T, k kind) {
			back := k.through(t, a)
			defer back.Release()
			validThroughout(t, back)
			assert.Equal(t, a.Buffers(), back.Buffers())
			view, err := back.HostView(background)
			require.NoError(t, err)
			defer view.Release()
			assertEqualArrays(t, arr, view)
			sameOnHost(t, arr, back)
		})
	})
}

// atOddAddresses is a copy of an array whose buffers begin one byte behind an aligned address.
func atOddAddresses(of arrow.ArrayData) arrow.ArrayData {
	buffers := make([]*memory.Buffer, len(of.Buffers()))
	for i, b := range of.Buffers() {
		if b != nil {
			buffers[i] = memory.NewBufferBytes(append([]byte{0}, b.Bytes()...)[1:])
		}
	}
	children := make([]arrow.ArrayData, len(of.Children()))
	for i, c := range of.Children() {
		children[i] = atOddAddresses(c)
	}
	if d := of.Dictionary(); d != nil && of.DataType().ID() == arrow.DICTIONARY {
		return array.NewDataWithDictionary(of.DataType(), of.Len(), buffers, of.NullN(), of.Offset(), atOddAddresses(d).(*array.Data))
	}
	return array.NewData(of.DataType(), of.Len(), buffers, children, of.NullN(), of.Offset())
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
