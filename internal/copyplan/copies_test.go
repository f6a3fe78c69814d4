package copyplan

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// oneGPU is the GPU of a simulated machine.
func oneGPU(t *testing.T) *cudaalloc.Device {
	t.Helper()
	return cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
}

// eachCase runs a test with arrays of every type.
func eachCase(t *testing.T, variants []cases.Variant, test func(*testing.T, arrow.Array)) {
	for _, c := range cases.All() {
		for _, v := range variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				arr, err := c.Array(memory.NewGoAllocator(), v)
				require.NoError(t, err)
				defer arr.Release()
				test(t, arr)
			})
		}
	}
}

// copyOf is a copy of a tree on a device, which the end of the test releases.
func copyOf(t *testing.T, of tree.Tree, dev device.Device) tree.Tree {
	t.Helper()
	there, err := ToDevice(t.Context(), of, dev, nil)
	require.NoError(t, err)
	t.Cleanup(there.Mem.Release)
	return there
}

// sameOnHost checks that a copy of the tree to the host is the array.
func sameOnHost(t *testing.T, want arrow.Array, of tree.Tree) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	got, err := ToHost(t.Context(), of, mem, nil)
	require.NoError(t, err)
	defer got[0].Release()
	assert.True(t, array.Equal(want, got[0]), "want %v\ngot  %v", want, got[0])
	assert.NoError(t, array.ValidateFull(got[0]))
	assert.Zero(t, got[0].Data().Offset())
}

// Arrays of every type, alone, below a struct and below a struct of that, are copied: on the host, to a device, there, and from it; whole and in
// parts.
func TestCopiesOfEveryType(t *testing.T) {
	gpu := oneGPU(t)
	eachCase(t, cases.Variants, func(t *testing.T, arr arrow.Array) {
		for range 3 {
			copies(t, arr, gpu)
			above, err := array.NewStructArrayWithFields([]arrow.Array{arr}, []arrow.Field{nullable("a", arr.DataType())})
			require.NoError(t, err)
			defer above.Release()
			arr = above
		}
	})
}

// copies checks the copies of an array.
func copies(t *testing.T, arr arrow.Array, gpu device.Device) {
	t.Helper()
	here := trees.Of(t, arr)
	there := copyOf(t, here, gpu)
	again := copyOf(t, there, gpu)
	size, err := NumBytes(t.Context(), here)
	require.NoError(t, err)
	remote, err := NumBytes(t.Context(), there)
	require.NoError(t, err)
	assert.LessOrEqual(t, remote, size+int64(arr.Len()), "bytes, and bitmaps that a copy to the host makes")
	n := int64(arr.Len())
	for _, part := range [][2]int64{{0, n}, {min(1, n), n}, {0, max(n-1, 0)}, {n / 2, n / 2}} {
		want := array.NewSlice(arr, part[0], part[1])
		for _, from := range []tree.Tree{here, there, again} {
			cut := trees.Slice(from, part[0], part[1])
			sameOnHost(t, want, cut)
			counted, err := CountNulls(t.Context(), cut, true)
			require.NoError(t, err)
			if counted[0].Layout.Validity {
				assert.EqualValues(t, want.NullN(), counted[0].Nulls)
			}
			if from.At.ID.Type != device.CPU {
				sameOnHost(t, want, copyOf(t, cut, gpu))
			}
		}
		want.Release()
	}
}

// A copy of contents that do not hold together is an error that names the place, and leaves nothing behind.
func TestCopyOfBrokenContents(t *testing.T) {
	union := []arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}
	texts := `["one","two","three"]`
	lists := `[[1,2],[3],[4,5]]`
	for _, row := range []struct {
		name  string
		dt    arrow.DataType
		text  string
		spoil trees.Change
		want  string
	}{
		{"text with a negative first offset", arrow.BinaryTypes.String, texts, trees.Put[int32](1, 0, -1), "array.offsets = -1 to 11, want an ascending range"},
		{"text that ends before it begins", arrow.BinaryTypes.String, texts, trees.Put[int32](1, 0, 12), "array.offsets = 12 to 11"},
		{"large text with a negative end", arrow.BinaryTypes.LargeString, texts, trees.Put[int64](1, 3, -7), "array.offsets[3] = -7"},
		{"a list beyond its values", arrow.ListOf(arrow.PrimitiveTypes.Int32), lists, trees.Put[int32](1, 3, 99), "array.children[0].length = 5, want elements 0 to 99, which the parent uses"},
		{"a large list with a negative first offset", arrow.LargeListOf(arrow.PrimitiveTypes.Int32), lists, trees.Put[int64](1, 0, -2), "array.offsets = -2 to 5"},
		{"a list view beyond its values", arrow.ListViewOf(arrow.PrimitiveTypes.Int32), lists, trees.Put[int32](2, 1, 50), "array.sizes[1] = 50"},
		{"text below a list", arrow.ListOf(arrow.BinaryTypes.String), `[["a","b"],["c"]]`, trees.In(0, trees.Put[int32](1, 0, 9)), "array.children[0].offsets = 9 to 3"},
		{"text in a dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, `["a","b"]`, trees.In(0, trees.Put[int32](1, 0, 9)), "array.dictionary.offsets = 9 to 2"},
		{"a dense union of no such type", arrow.DenseUnionOf(union, []arrow.UnionTypeCode{5, 7}), `[[5,1],[7,"b"]]`, trees.Put[int8](0, 1, 6), "array.type_ids[1] = 6, want a type id of dense_union"},
		{"a dense union beyond its values", arrow.DenseUnionOf(union, []arrow.UnionTypeCode{5, 7}), `[[5,1],[7,"b"]]`, trees.Put[int32](1, 1, 8), "array.children[1].length = 1, want elements 8 to 9"},
		{"a dense union before its values", arrow.DenseUnionOf(union, []arrow.UnionTypeCode{5, 7}), `[[5,1],[7,"b"]]`, trees.Put[int32](1, 0, -8), "array.children[0].length = 1, want elements -8 to -7"},
		{"a view into no buffer", arrow.BinaryTypes.StringView, `["a text that is longer than twelve bytes"]`, trees.Put[int32](1, 2, 3), "array.views[0].buffer_index = 3"},
		{"runs that end too early", arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int32), `[1,1,2]`, trees.In(0, trees.Put[int32](1, 1, 2)), "array.children[0].length = 2, want runs for 3 elements"},
	} {
		t.Run(row.name, func(t *testing.T) {
			of := trees.LooseOf(t, trees.FromJSON(t, row.dt, row.text)).Tree
			row.spoil(&of.Nodes[0])
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			_, err := ToHost(t.Context(), of, mem, nil)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, "cdevice: read: "+row.want)
		})
	}
}

// What libcudf is given of arrays, and what becomes of that again, has the values that the arrays have.
func TestForCuDFAndBack(t *testing.T) {
	gpu, taken := oneGPU(t), 0
	eachCase(t, cases.Variants, func(t *testing.T, arr arrow.Array) {
		there := copiedTo(t, gpu, arr)
		for _, of := range []tree.Tree{there, trees.Slice(there, min(1, int64(arr.Len())), int64(arr.Len()))} {
			want := array.NewSlice(arr, int64(arr.Len())-of.Nodes[0].Length, int64(arr.Len()))
			defer want.Release()
			given, changed, err := ForCuDF(t.Context(), of, true)
			if err != nil {
				require.ErrorIs(t, err, arrow.ErrNotImplemented)
				return
			}
			taken++
			assert.Equal(t, !arrow.TypeEqual(arr.DataType(), given.Nodes[0].Type), changed)
			assert.Zero(t, given.Nodes[0].Offset)
			back := fromCuDF(t, given, arr.DataType())
			given.Mem.Release()
			sameOnHost(t, want, back)
		}
	})
	assert.Greater(t, taken, 200)
}

// A validation of memory of a device reads the contents as they are on the host, but for values of a fixed width.
func TestContentsAreReadOfADevice(t *testing.T) {
	gpu := oneGPU(t)
	eachCase(t, []cases.Variant{cases.Sliced}, func(t *testing.T, arr arrow.Array) {
		calls := 0
		require.NoError(t, EachOnHost(t.Context(), copiedTo(t, gpu, arr), anySize, func(n *tree.Node) error {
			calls++
			assert.EqualValues(t, arr.Len(), n.Length)
			if n.Layout.Validity {
				assert.EqualValues(t, arr.NullN(), hostread.CountNulls(n))
			}
			return nil
		}))
		assert.Equal(t, 1, calls)
	})
}
