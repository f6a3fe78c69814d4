package copyplan

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// structOf returns a struct of columns, with these elements null and nothing else changed.
func structOf(columns []arrow.Array, null ...int) arrow.Array {
	var fields []arrow.Field
	var data []arrow.ArrayData
	for i, c := range columns {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("f", i), Type: c.DataType(), Nullable: true})
		data = append(data, c.Data())
	}
	all := array.MakeFromData(array.NewData(arrow.StructOf(fields...), columns[0].Len(), []*memory.Buffer{nil}, data, 0, 0))
	return trees.NullAt(all, null...)
}

// withDictionary returns indices into a dictionary that may have nulls.
func withDictionary(t *testing.T, index arrow.DataType, indices string, values arrow.Array) arrow.Array {
	i := trees.FromJSON(t, index, indices)
	dt := &arrow.DictionaryType{IndexType: index, ValueType: values.DataType()}
	return array.MakeFromData(array.NewDataWithDictionary(dt, i.Len(), i.Data().Buffers(), i.NullN(), 0, values.Data().(*array.Data)))
}

// unsanitizedArrays are arrays of four elements, of which libcudf's functions would make nonsense, and what they hold.
func unsanitizedArrays(t *testing.T) map[string][2]arrow.Array {
	text := func() arrow.Array { return trees.FromJSON(t, arrow.BinaryTypes.String, `["a","bb","ccc","dddd"]`) }
	numbers := func() arrow.Array { return trees.FromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2,3,4]`) }
	bools := trees.FromJSON(t, arrow.FixedWidthTypes.Boolean, `[true,false,true,true]`)
	lists := func() arrow.Array {
		return trees.FromJSON(t, arrow.ListOf(arrow.BinaryTypes.String), `[["a","b"],["c"],["dd",null,"e"],["f"]]`)
	}
	nested := trees.FromJSON(t, arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int8)), `[[[1],[2,3]],[[4]],[[5,6],[7]],[]]`)
	views := trees.FromJSON(t, arrow.BinaryTypes.StringView, `["a","a text that is longer than twelve","c","d"]`)
	words := withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1,null,1]`, trees.FromJSON(t, arrow.BinaryTypes.String, `["x","y"]`))
	holes := withDictionary(t, arrow.PrimitiveTypes.Int16, `[0,1,2,1]`, trees.NullAt(trees.FromJSON(t, arrow.BinaryTypes.String, `["x","y","z"]`), 1))
	numbered := withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1,2,1]`, trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[10,null,30]`))
	dt := arrow.StructOf(arrow.Field{Name: "f0", Type: arrow.PrimitiveTypes.Int32, Nullable: true})
	fixed := trees.FromJSON(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16), `[[1,2],[3,4],[5,null],[7,8]]`)
	fixedBelow := trees.FromJSON(t, arrow.ListOf(fixed.DataType()), `[[[1,2],null],null,[[3,4]],[]]`)
	in := map[string][2]arrow.Array{
		"utf8":               {trees.NullAt(text(), 1), trees.FromJSON(t, arrow.BinaryTypes.String, `["a",null,"ccc","dddd"]`)},
		"large_utf8":         {trees.NullAt(trees.FromJSON(t, arrow.BinaryTypes.LargeString, `["a","bb","ccc","dddd"]`), 0, 3), trees.FromJSON(t, arrow.BinaryTypes.LargeString, `[null,"bb","ccc",null]`)},
		"list":               {trees.NullAt(lists(), 0, 2), trees.FromJSON(t, lists().DataType(), `[null,["c"],null,["f"]]`)},
		"list of lists":      {trees.NullAt(nested, 1), trees.FromJSON(t, nested.DataType(), `[[[1],[2,3]],null,[[5,6],[7]],[]]`)},
		"list of text":       {listOver(text(), 1), nil},
		"struct of numbers":  {structOf([]arrow.Array{numbers()}, 1, 3), trees.FromJSON(t, dt, `[{"f0":1},null,{"f0":3},null]`)},
		"struct of text":     {structOf([]arrow.Array{text(), numbers()}, 2), nil},
		"struct of bools":    {structOf([]arrow.Array{bools}, 0), nil},
		"struct of lists":    {structOf([]arrow.Array{lists(), nested}, 2), nil},
		"struct of views":    {structOf([]arrow.Array{views}, 1), nil},
		"struct of words":    {structOf([]arrow.Array{words}, 1), nil},
		"struct of structs":  {structOf([]arrow.Array{structOf([]arrow.Array{text()}, 0)}, 1), nil},
		"struct with nulls":  {structOf([]arrow.Array{trees.NullAt(numbers(), 0)}, 1), nil},
		"dictionary":         {holes, nil},
		"dictionary numbers": {numbered, nil},
		"list of dictionary": {listOver(holes), nil},
		"fixed_size_list":    {trees.NullAt(fixed, 1), trees.FromJSON(t, fixed.DataType(), `[[1,2],null,[5,null],[7,8]]`)},
		"list of fixed":      {fixedBelow, fixedBelow},
		"struct of fixed":    {structOf([]arrow.Array{fixed}, 0, 3), nil},
	}
	return in
}

// listOver returns lists of one element each.
func listOver(values arrow.Array, null ...int) arrow.Array {
	offsets := make([]int32, values.Len()+1)
	for i := range offsets {
		offsets[i] = int32(i)
	}
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}
	all := array.MakeFromData(array.NewData(arrow.ListOf(values.DataType()), values.Len(), buffers, []arrow.ArrayData{values.Data()}, 0, 0))
	return trees.NullAt(all, null...)
}

// isSanitized checks what libcudf's functions expect of an array, below nulls of a parent too.
func isSanitized(t *testing.T, arr arrow.Array) {
	t.Helper()
	switch a := arr.(type) {
	case *array.String:
		for i := range a.Len() {
			assert.False(t, a.IsNull(i) && a.Value(i) != "", "null string %d is not empty", i)
		}
	case *array.LargeString:
		for i := range a.Len() {
			assert.False(t, a.IsNull(i) && a.Value(i) != "", "null string %d is not empty", i)
		}
	case *array.List:
		for i := range a.Len() {
			first, last := a.ValueOffsets(i)
			assert.False(t, a.IsNull(i) && first != last, "null list %d is not empty", i)
		}
		isSanitized(t, a.ListValues())
	case *array.Struct:
		for k := range a.NumField() {
			for i := range a.Len() {
				assert.False(t, a.IsNull(i) && a.Field(k).IsValid(i), "field %d of null struct %d is valid", k, i)
			}
			isSanitized(t, a.Field(k))
		}
	case *array.Dictionary:
		assert.Zero(t, a.Dictionary().NullN(), "nulls in a dictionary")
		assert.True(t, arrow.IsSignedInteger(a.DataType().(*arrow.DictionaryType).IndexType.ID()))
		isSanitized(t, a.Dictionary())
	case *array.FixedSizeList:
		t.Error("a list of a fixed size")
	}
}

// What is below nulls goes, what is not stays: on the way to libcudf, and back through FromCuDF. What is fit is not
// copied.
func TestForCuDFSanitizes(t *testing.T) {
	gpu := oneGPU(t)
	for name, c := range unsanitizedArrays(t) {
		t.Run(name, func(t *testing.T) {
			whole := copiedTo(t, gpu, c[0])
			for _, part := range [][2]int64{{0, 4}, {1, 4}, {0, 3}, {1, 2}, {2, 2}} {
				given := forCuDF(t, trees.Slice(whole, part[0], part[1]), false)
				host := hostOf(t, given)
				isSanitized(t, host)
				assert.EqualValues(t, host.NullN(), given.Nodes[0].Nulls)
				if part == [2]int64{0, 4} {
					assert.NotEqual(t, whole.Nodes[0].Buffers, given.Nodes[0].Buffers)
				}
				assert.Equal(t, given.Nodes[0].Buffers, forCuDF(t, given, false).Nodes[0].Buffers, "a copy of what is fit")
				got := hostOf(t, fromCuDF(t, given, c[0].DataType()))
				if c[1] != nil {
					want := array.NewSlice(c[1], part[0], part[1])
					assert.True(t, array.Equal(want, got), "want %v\ngot  %v", want, got)
				}
				wantJSON, err := array.NewSlice(c[0], part[0], part[1]).MarshalJSON()
				require.NoError(t, err)
				gotJSON, err := got.MarshalJSON()
				require.NoError(t, err)
				assert.JSONEq(t, string(wantJSON), string(gotJSON))
			}
		})
	}
}

// What follows the rows of a slice in its source is not copied as padding.
func TestSlicesAreCopiedWithZerosBehindThem(t *testing.T) {
	const rows = 1000
	b := array.NewInt32Builder(memory.NewGoAllocator())
	for i := range rows {
		b.Append(-1)
		if i == rows/2 {
			b.AppendNull()
		}
	}
	gpu := oneGPU(t)
	whole := copiedTo(t, gpu, b.NewArray())
	for _, n := range []int64{3, 8, 24, 500, 601, 992} {
		part := trees.Slice(whole, 0, n)
		for name, of := range map[string]tree.Tree{"ForCuDF": forCuDF(t, part, false), "ToDevice": copyOf(t, part, gpu)} {
			for k, used := range []int64{(n + 7) / 8, n * 4} {
				at := of.Nodes[0].Buffers[k]
				if at == 0 {
					continue
				}
				padded := (used + 255) / 256 * 256
				assert.Equal(t, make([]byte, padded-used), readFrom(t, of, at, padded)[used:], "%s of %d rows, buffer %d", name, n, k)
			}
		}
	}
}

// readFrom reads memory of a tree, after its event.
func readFrom(t *testing.T, of tree.Tree, at uintptr, size int64) []byte {
	t.Helper()
	host := make([]byte, size)
	s := cudatest.NewStream(t, of.At.Dev)
	require.NoError(t, of.At.WaitOn(s))
	require.NoError(t, of.At.Dev.Copy([]device.Range{{Dst: device.Ptr(abi.AddressOf(host)), Src: device.Ptr(at), Size: size}}, s))
	require.NoError(t, s.Synchronize(t.Context()))
	return host
}

// Offsets and indices of a producer that is not to be trusted are errors where a column is rebuilt.
func TestForCuDFOfInconsistentArrays(t *testing.T) {
	gpu := oneGPU(t)
	int8s, text := arrow.PrimitiveTypes.Int8, arrow.BinaryTypes.String
	holes := trees.NullAt(trees.FromJSON(t, text, `["x","y"]`), 1)
	const offsets = "array.offsets[0] = 0 to 9, want an ascending range within 0 to "
	for _, row := range []struct {
		in   arrow.Array
		set  trees.Change
		want string
	}{
		{trees.FromJSON(t, text, `["a",null,"bcd"]`), func(n *tree.Node) { copy(trees.Values[int32](n, 1, 3), []int32{0, 9, 3}) }, offsets + "4"},
		// Offsets that fall at a null: the same bytes twice, whose sum has no bound.
		{trees.FromJSON(t, text, `["ab",null,"cd"]`), func(n *tree.Node) { copy(trees.Values[int32](n, 1, 4), []int32{0, 4, 0, 4}) },
			"array.offsets[2] = 0 to 4, want a range apart from those before"},
		{withDictionary(t, int8s, `[0,1]`, holes), trees.Put[int8](1, 1, 2), "array.indices[1] = 2, want 0 to 1"},
		{withDictionary(t, int8s, `[0,1]`, holes), trees.Put[int8](1, 1, -1), "array.indices[1] = -1, want 0 to 1"},
	} {
		l := trees.LooseOf(t, row.in)
		row.set(&l.Nodes[0])
		_, _, err := ForCuDF(t.Context(), l.Upload(t, gpu), false)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.ErrorContains(t, err, row.want)
	}
	l := trees.LooseOf(t, trees.FromJSON(t, arrow.ListOf(arrow.Null), `[[null,null],null,[null,null]]`))
	copy(trees.Values[int32](&l.Nodes[0], 1, 3), []int32{0, 9, 3})
	_, err := FromCuDF(t.Context(), l.Upload(t, gpu), []arrow.DataType{arrow.FixedSizeListOf(2, arrow.Null)})
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, offsets+"4")
}
