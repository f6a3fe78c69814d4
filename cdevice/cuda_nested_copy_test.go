package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// A copy of this package in memory of a GPU knows the sizes of its buffers, but not the length of a run-end encoded
// array. Each type below a struct and a struct of that is copied from there: whole, sliced, and on the GPU.
func TestGPUEveryTypeBelowAStruct(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			arr, err := c.Array(memory.DefaultAllocator, cases.Valid)
			require.NoError(t, err)
			for depth := range 2 {
				fields := []arrow.Field{{Name: "a", Type: arr.DataType(), Nullable: true}}
				below, err := array.NewStructArrayWithFields([]arrow.Array{arr}, fields)
				require.NoError(t, err)
				arr = below
				rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "s", Type: arr.DataType()}}, nil), []arrow.Array{arr}, int64(arr.Len()))
				there, err := cdevice.CopyToDevice(t.Context(), rec, m.GPUs[0])
				require.NoError(t, err)
				defer there.Release()
				again, err := there.CopyTo(t.Context(), m.GPUs[0])
				require.NoError(t, err)
				defer again.Release()
				part, err := again.Slice(1, rec.NumRows())
				require.NoError(t, err)
				defer part.Release()
				for want, b := range map[arrow.RecordBatch]*cdevice.RecordBatch{rec: there, rec.NewSlice(0, rec.NumRows()): again, rec.NewSlice(1, rec.NumRows()): part} {
					require.NoError(t, b.ValidateFull(t.Context()))
					got, err := b.CopyToHost(t.Context(), nil)
					require.NoError(t, err)
					assert.True(t, array.RecordEqual(want, got), "depth %d\n%v\n%v", depth, want, got)
					got.Release()
				}
			}
		})
	}
}
