package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// A wrapped column that is known to have no nulls is exported without its bitmap, with nodes and
// without them; any other with it.
func TestBitmapWithoutNulls(t *testing.T) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]int64{1, 2, 3, 4}, nil)
	full := b.NewArray()
	defer full.Release()
	b.AppendValues([]int64{1, 2, 3, 4}, []bool{true, true, false, true})
	nulls := b.NewArray()
	defer nulls.Release()
	unknown := array.NewSlice(nulls, 0, 2) // without nulls, but they were not counted
	defer unknown.Release()
	require.Equal(t, array.UnknownNullCount, unknown.Data().NullN())

	for _, row := range []struct {
		name   string
		column arrow.Array
		bitmap bool
	}{{"no nulls", full, false}, {"nulls", nulls, true}, {"not counted", unknown, true}} {
		for _, nodes := range []bool{false, true} {
			t.Run(row.name, func(t *testing.T) {
				checkLeaks(t)
				require.NotNil(t, row.column.Data().Buffers()[0])
				schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
				rec := array.NewRecordBatch(schema, []arrow.Array{row.column}, int64(row.column.Len()))
				defer rec.Release()
				batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
				require.NoError(t, err)
				defer batch.Release()
				if nodes {
					column := batch.Column(0)
					assert.Equal(t, row.bitmap, column.Buffers()[0] != 0)
					column.Release()
				}
				out := garbageArray()
				require.NoError(t, cdevice.ExportRecordBatch(batch, out, nil))
				root := abi.As[abi.ArrowDeviceArray](out).Array
				column := abi.At[abi.ArrowArray](abi.Slice[uintptr](root.Children, 1)[0])
				assert.Equal(t, row.bitmap, abi.Slice[uintptr](column.Buffers, 2)[0] != 0)
				cdevice.ReleaseCArrowDeviceArray(out)
			})
		}
	}
}
