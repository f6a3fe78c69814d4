package tree

import (
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
	numbers := func() arrow.Array {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		defer b.Release()
		for i := range int64(rows) {
			b.Append(i)
		}
		return b.NewArray()
	}
	texts := func() arrow.Array {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		defer b.Release()
		for range rows {
			b.Append("0123456789")
		}
		return b.NewArray()
	}
	lists := func() arrow.Array {
		b := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64)
		defer b.Release()
		for i := range int64(rows) {
			b.Append(true)
			b.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{i, i}, nil)
		}
		return b.NewArray()
	}
	listViews := func() arrow.Array {
		b := array.NewListViewBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64)
		defer b.Release()
		for i := range int64(rows) {
			b.AppendWithSize(true, 2)
			b.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{i, i}, nil)
		}
		return b.NewArray()
	}
	union := func(mode arrow.UnionMode) func() arrow.Array {
		return func() arrow.Array {
			b := array.NewBuilder(memory.DefaultAllocator, arrow.UnionOf(mode, []arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, []arrow.UnionTypeCode{0}))
			defer b.Release()
			for i := range int64(rows) {
				b.(array.UnionBuilder).Append(0)
				b.(array.UnionBuilder).Child(0).(*array.Int64Builder).Append(i)
			}
			return b.NewArray()
		}
	}
	structs := func() arrow.Array {
		n, s := numbers(), texts()
		defer n.Release()
		defer s.Release()
		both, err := array.NewStructArray([]arrow.Array{n, s}, []string{"n", "s"})
		require.NoError(t, err)
		return both
	}
	for name, row := range map[string]struct {
		make  func() arrow.Array
		least int64 // bytes of the values
	}{
		"int64": {numbers, 8 * rows}, "utf8": {texts, 14 * rows}, "list": {lists, 20 * rows}, "struct": {structs, 22 * rows},
		"list_view": {listViews, 24 * rows}, "sparse_union": {union(arrow.SparseMode), 9 * rows}, "dense_union": {union(arrow.DenseMode), 13 * rows},
	} {
		whole := row.make()
		size := Own(whole).bytes()
		assert.GreaterOrEqual(t, size, row.least, name)
		assert.Less(t, size, row.least+row.least/4, name)
		sum := int64(0)
		for i := range int64(parts) {
			slice := array.NewSlice(whole, i*rows/parts, (i+1)*rows/parts)
			sum += Own(slice).bytes()
			slice.Release()
		}
		assert.InEpsilon(t, size, sum, 0.25, name)
		whole.Release()
	}
}
