package tree

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slice counts as its part of the buffers: ten slices of a tenth each are not ten times the memory.
func TestBytesOfSlices(t *testing.T) {
	const rows, parts = 1000, 10
	int64s, text := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	n, ids := []arrow.Field{{Name: "n", Type: int64s}}, []arrow.UnionTypeCode{0}
	for _, row := range []struct {
		dt      arrow.DataType
		element string
		least   int64 // bytes of the values
	}{
		{int64s, `7`, 8 * rows},
		{text, `"0123456789"`, 14 * rows},
		{arrow.ListOf(int64s), `[1,2]`, 20 * rows},
		{arrow.ListViewOf(int64s), `[1,2]`, 24 * rows},
		{arrow.StructOf(n[0], arrow.Field{Name: "s", Type: text}), `{"n":7,"s":"0123456789"}`, 22 * rows},
		{arrow.SparseUnionOf(n, ids), `[0,7]`, 9 * rows},
		{arrow.DenseUnionOf(n, ids), `[0,7]`, 13 * rows},
	} {
		all := strings.NewReader("[" + strings.Repeat(row.element+",", rows-1) + row.element + "]")
		whole, _, err := array.FromJSON(memory.DefaultAllocator, row.dt, all)
		require.NoError(t, err)
		size := Own(whole).bytes()
		assert.GreaterOrEqual(t, size, row.least, row.dt)
		assert.Less(t, size, row.least+row.least/4, row.dt)
		sum := int64(0)
		for i := range int64(parts) {
			slice := array.NewSlice(whole, i*rows/parts, (i+1)*rows/parts)
			sum += Own(slice).bytes()
			slice.Release()
		}
		assert.InEpsilon(t, size, sum, 0.25, row.dt)
		whole.Release()
	}
}
