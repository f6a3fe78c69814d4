package cdevice_test

import (
	"context"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// poke writes a value at index i of a buffer of the array, or of its only child.
func poke[T any](buffer, i int, value T) func(*abi.ArrowArray) {
	return func(a *abi.ArrowArray) {
		var zero T
		addr := abi.Slice[uintptr](a.Buffers, int(a.NBuffers))[buffer]
		*abi.At[T](addr + uintptr(i)*unsafe.Sizeof(zero)) = value
	}
}

// A copy of contents that do not hold together is an error that names the place,
// also without validation at the import, and leaves nothing behind.
func TestCopyOfBrokenContents(t *testing.T) {
	union := []arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}
	texts := `["one","two","three"]`
	lists := `[[1,2],[3],[4,5]]`
	for _, row := range []struct {
		name  string
		dt    arrow.DataType
		text  string
		spoil func(*abi.ArrowArray)
		want  string
	}{
		{"text with a negative first offset", arrow.BinaryTypes.String, texts, poke[int32](1, 0, -1), "array.offsets = -1 to 11, want an ascending range"},
		{"text that ends before it begins", arrow.BinaryTypes.String, texts, poke[int32](1, 0, 12), "array.offsets = 12 to 11"},
		{"large text with a negative end", arrow.BinaryTypes.LargeString, texts, poke[int64](1, 3, -7), "array.offsets[3] = -7"},
		{"a list beyond its values", arrow.ListOf(arrow.PrimitiveTypes.Int32), lists, poke[int32](1, 3, 99), "array.children[0].length = 5, want elements 0 to 99, which the parent uses"},
		{"a large list with a negative first offset", arrow.LargeListOf(arrow.PrimitiveTypes.Int32), lists, poke[int64](1, 0, -2), "array.offsets = -2 to 5"},
		{"a list view beyond its values", arrow.ListViewOf(arrow.PrimitiveTypes.Int32), lists, poke[int32](2, 1, 50), "array.sizes[1] = 50"},
		{"text below a list", arrow.ListOf(arrow.BinaryTypes.String), `[["a","b"],["c"]]`, func(a *abi.ArrowArray) {
			poke[int32](1, 0, 9)(abi.At[abi.ArrowArray](*abi.At[uintptr](a.Children)))
		}, "array.children[0].offsets = 9 to 3"},
		{"text in a dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, `["a","b"]`, func(a *abi.ArrowArray) {
			poke[int32](1, 0, 9)(abi.At[abi.ArrowArray](a.Dictionary))
		}, "array.dictionary.offsets = 9 to 2"},
		{"a dense union of no such type", arrow.DenseUnionOf(union, []arrow.UnionTypeCode{5, 7}), `[[5,1],[7,"b"]]`, poke[int8](0, 1, 6), "array.type_ids[1] = 6, want a type id of dense_union"},
		{"a dense union beyond its values", arrow.DenseUnionOf(union, []arrow.UnionTypeCode{5, 7}), `[[5,1],[7,"b"]]`, poke[int32](1, 1, 8), "array.children[1].length = 1, want elements 8 to 9"},
		{"a dense union before its values", arrow.DenseUnionOf(union, []arrow.UnionTypeCode{5, 7}), `[[5,1],[7,"b"]]`, poke[int32](1, 0, -8), "array.children[0].length = 1, want elements -8 to -7"},
		{"a view into no buffer", arrow.BinaryTypes.StringView, `["a text that is longer than twelve bytes"]`, poke[int32](1, 2, 3), "array.views[0].buffer_index = 3"},
		{"runs that end too early", arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int32), `[1,1,2]`, func(a *abi.ArrowArray) {
			poke[int32](1, 1, 2)(abi.At[abi.ArrowArray](*abi.At[uintptr](a.Children)))
		}, "array.children[0].length = 2, want runs for 3 elements"},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkLeaks(t)
			a, err := cdevice.WrapArray(fromJSON(t, row.dt, row.text), device.CPUDevice())
			require.NoError(t, err)
			out := new(cdevice.CArrowDeviceArray)
			require.NoError(t, cdevice.ExportArray(a, out, nil))
			a.Release()
			row.spoil(abi.As[abi.ArrowArray](&out.Array))
			back, err := cdevice.ImportArrayWithType(out, row.dt)
			require.NoError(t, err)
			defer back.Release()
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			_, err = back.CopyToHost(context.Background(), mem)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, "cdevice: read: "+row.want)
		})
	}
}
