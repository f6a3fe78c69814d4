package copyplan

import (
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// copiedTo is a copy of the array on a device, which the end of the test releases.
func copiedTo(t *testing.T, dev device.Device, arr arrow.Array) tree.Tree {
	t.Helper()
	return copyOf(t, trees.Of(t, arr), dev)
}

// forCuDF is ForCuDF of a tree, which must not fail; the end of the test releases the result.
func forCuDF(t *testing.T, of tree.Tree, dropZones bool) tree.Tree {
	t.Helper()
	given, _, err := ForCuDF(t.Context(), of, dropZones)
	require.NoError(t, err)
	t.Cleanup(given.Mem.Release)
	return given
}

// fromCuDF is FromCuDF of a tree, likewise.
func fromCuDF(t *testing.T, of tree.Tree, dt arrow.DataType) tree.Tree {
	t.Helper()
	back, err := FromCuDF(t.Context(), of, []arrow.DataType{dt})
	require.NoError(t, err)
	t.Cleanup(back.Mem.Release)
	return back
}

// hostOf is a copy of the tree on the host, which the end of the test releases.
func hostOf(t *testing.T, of tree.Tree) arrow.Array {
	t.Helper()
	got, err := ToHost(t.Context(), of, nil, nil)
	require.NoError(t, err)
	t.Cleanup(got[0].Release)
	require.NoError(t, array.ValidateFull(got[0]))
	return got[0]
}

func nullable(name string, dt arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: dt, Nullable: true}
}

// libcudf counts rows and elements of lists with 32 bits, and has one more offset than rows. No memory is behind these.
func TestForCuDFRefusesMoreRowsThanItCounts(t *testing.T) {
	gpu := oneGPU(t)
	const most = math.MaxInt32
	fixed := func(n, count int) tree.Node { return trees.Above(trees.Leaf(n, 0), trees.Leaf(n*count)) }
	for _, row := range []struct {
		dt   arrow.DataType
		node tree.Node
		want string
	}{
		{arrow.Null, trees.Leaf(1 << 31), "array.length = 2147483648, want at most 2147483647"},
		{arrow.PrimitiveTypes.Int8, trees.Leaf(1<<31, 0, 8), "array.length = 2147483648, want at most 2147483647"},
		{arrow.BinaryTypes.String, trees.Leaf(most, 0, 8, 8), "array.length = 2147483647, want at most 2147483646"},
		{arrow.BinaryTypes.LargeString, trees.Leaf(most, 0, 8, 8), "array.length = 2147483647, want at most 2147483646"},
		{arrow.BinaryTypes.StringView, trees.Leaf(most, 0, 8, 0), "array.length = 2147483647, want at most 2147483646"},
		{arrow.ListOf(arrow.Null), trees.Above(trees.Leaf(most, 0, 8), trees.Leaf(0)), "array.length = 2147483647, want at most 2147483646"},
		{arrow.ListOf(arrow.Null), trees.Above(trees.Leaf(2, 0, 8), trees.Leaf(1<<31)), "array.children[0].length = 2147483648, want at most 2147483647"},
		{arrow.FixedSizeListOf(1<<15, arrow.Null), fixed(1<<16, 1<<15), "array.length = 65536, want at most 65535 lists of 32768 elements"},
		{arrow.FixedSizeListOf(1, arrow.Null), fixed(most, 1), "array.length = 2147483647, want at most 2147483646"},
		{arrow.StructOf(nullable("x", arrow.Null)), trees.Above(trees.Leaf(1, 0), trees.Leaf(1<<31)), "array.children[0].length = 2147483648, want at most 2147483647"},
	} {
		_, _, err := ForCuDF(t.Context(), trees.Make(gpu, row.dt, row.node), false)
		require.ErrorIs(t, err, arrow.ErrNotImplemented, "%s", row.dt)
		require.ErrorContains(t, err, "cdevice: for cuDF: "+row.want+" (cuDF)")
	}
	forCuDF(t, trees.Make(gpu, arrow.Null, trees.Leaf(most)), false)
	none := trees.Make(gpu, arrow.Null, trees.Leaf(1))
	none.Nodes = nil
	_, _, err := ForCuDF(t.Context(), none, false)
	assert.ErrorContains(t, err, "cdevice: for cuDF: columns = 0, want at least one (cuDF)")
	for _, do := range []func(tree.Tree) error{
		func(of tree.Tree) error { _, _, err := ForCuDF(t.Context(), of, false); return err },
		func(of tree.Tree) error {
			_, err := FromCuDF(t.Context(), of, []arrow.DataType{arrow.Null})
			return err
		},
	} {
		err := do(trees.Make(device.CPUDevice(), arrow.Null, trees.Leaf(1)))
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "device_type = cpu, want memory of CUDA")
	}
}

// What libcudf would throw at, or read wrongly, is refused by the path of the type.
func TestForCuDFRefusesByName(t *testing.T) {
	gpu := oneGPU(t)
	b := array.NewStringBuilder(memory.NewGoAllocator())
	for i := range 129 {
		b.Append(fmt.Sprint(i))
	}
	many := b.NewArray()
	int8s := arrow.PrimitiveTypes.Int8
	binary := trees.FromJSON(t, arrow.BinaryTypes.Binary, `["AQI="]`)
	for want, arr := range map[string]arrow.Array{
		"array.dictionary.length = 129, want at most 128, the values that int8 can index (cuDF)":                  withDictionary(t, arrow.PrimitiveTypes.Uint8, `[0,128]`, many),
		"array.dictionary.type = list<item: int8, nullable>, want values that are neither nested nor null (cuDF)": withDictionary(t, int8s, `[0,1]`, trees.FromJSON(t, arrow.ListOf(int8s), `[[1],[2]]`)),
		"array.dictionary.type = null, want values that are neither nested nor null (cuDF)":                       withDictionary(t, int8s, `[0,1]`, array.NewNull(2)),
		"array.dictionary.type = binary, want a type that cuDF has":                                               withDictionary(t, int8s, `[0]`, binary),
		"array.children[0].type = large_list<item: int8, nullable>, want a type that cuDF has":                    listOver(trees.FromJSON(t, arrow.LargeListOf(int8s), `[[1]]`)),
		"array.children[0].dictionary.length = 129, want at most 128, the values that int8 can index (cuDF)":      listOver(withDictionary(t, arrow.PrimitiveTypes.Uint8, `[0,128]`, many)),
		"array.children[1].type = map<utf8, int64, items_nullable>, want a type that cuDF has": structOf([]arrow.Array{
			array.NewNull(1), trees.FromJSON(t, arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), `[[]]`)}),
		"array.type = extension<arrow.opaque[storage_type=binary, type_name=blob, vendor_name=us]>, want a type that cuDF has": array.NewExtensionArrayWithStorage(
			extensions.NewOpaqueType(arrow.BinaryTypes.Binary, "blob", "us"), binary),
	} {
		_, _, err := ForCuDF(t.Context(), copiedTo(t, gpu, arr), false)
		require.ErrorIs(t, err, arrow.ErrNotImplemented)
		assert.EqualError(t, err, "cdevice: for cuDF: "+want+": not implemented")
	}
	there := copiedTo(t, gpu, withDictionary(t, arrow.PrimitiveTypes.Uint8, `[0,127]`, array.NewSlice(many, 0, 128)))
	given := forCuDF(t, there, false)
	assert.Equal(t, there.Nodes[0].Buffers, given.Nodes[0].Buffers, "only the label changes")
	assert.Equal(t, arrow.INT8, given.Nodes[0].Type.(*arrow.DictionaryType).IndexType.ID())
}

// A time zone is lost in libcudf, so the caller chooses that, wherever in a column it is; it comes back by FromCuDF.
func TestForCuDFTimeZones(t *testing.T) {
	gpu := oneGPU(t)
	zoned := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "Europe/Berlin"}
	moments := trees.FromJSON(t, zoned, `["2026-11-20 09:10:11Z",null,"1969-12-31 23:59:59Z"]`)
	for path, arr := range map[string]arrow.Array{
		"array.type":                         moments,
		"array.children[0].type":             listOver(moments),
		"array.children[1].children[0].type": structOf([]arrow.Array{array.NewNull(3), listOver(moments)}),
		"array.dictionary.type":              withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,null,2]`, array.NewSlice(moments, 2, 3)),
	} {
		there := copiedTo(t, gpu, arr)
		_, _, err := ForCuDF(t.Context(), there, false)
		require.ErrorIs(t, err, arrow.ErrNotImplemented)
		require.ErrorContains(t, err, "cdevice: for cuDF: "+path+" = timestamp[us, tz=Europe/Berlin], want a timestamp without a time zone, or the choice to lose it (cuDF)")
		given := forCuDF(t, there, true)
		assert.Equal(t, there.Nodes[0].Buffers, given.Nodes[0].Buffers)
		assert.Same(t, there.Nodes[0].Type, given.Nodes[0].Type, "the zone is still in our schema")
	}
	// As libcudf exports what it took: without zones.
	plain := copiedTo(t, gpu, trees.FromJSON(t, &arrow.TimestampType{Unit: arrow.Microsecond}, `["2026-11-20 09:10:11",null]`))
	sameOnHost(t, array.NewSlice(moments, 0, 2), fromCuDF(t, plain, zoned))
	_, err := FromCuDF(t.Context(), plain, []arrow.DataType{&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}})
	assert.ErrorIs(t, err, arrow.ErrType)
}

// FromCuDF gives back what ForCuDF and libcudf change: nothing else, and not the values.
func TestFromCuDF(t *testing.T) {
	gpu := oneGPU(t)
	int16s := arrow.PrimitiveTypes.Int16
	bool8 := extensions.NewBool8Type()
	lists := trees.FromJSON(t, arrow.ListOf(int16s), `[[1,2],null,[5,6]]`)
	for _, c := range []struct {
		name string
		in   arrow.Array
		want arrow.DataType
		err  string
		json string // of the result; empty: as in
	}{
		{"the same", lists, arrow.ListOf(int16s), "", ""},
		{"names below", lists, arrow.ListOfField(arrow.Field{Name: "element", Type: int16s}), "", ""},
		{"lists of a fixed size", lists, arrow.FixedSizeListOf(2, int16s), "", ""},
		{"lists of another size", lists, arrow.FixedSizeListOf(3, int16s), "array.lists[0].length = 2, want 3", ""},
		{"no lists", trees.FromJSON(t, lists.DataType(), `[]`), arrow.FixedSizeListOf(3, int16s), "", ""},
		{"a precision", trees.FromJSON(t, &arrow.Decimal128Type{Precision: 38, Scale: 2}, `["1.25"]`), &arrow.Decimal128Type{Precision: 10, Scale: 2}, "", ""},
		{"another scale", trees.FromJSON(t, &arrow.Decimal128Type{Precision: 38, Scale: 2}, `["1.25"]`), &arrow.Decimal128Type{Precision: 38, Scale: 3}, "array.type = decimal(38, 2), want decimal(38, 3)", ""},
		{"another decimal", trees.FromJSON(t, &arrow.Decimal64Type{Precision: 18, Scale: 2}, `["1.25"]`), &arrow.Decimal128Type{Precision: 38, Scale: 2}, "array.type", ""},
		{"an extension", trees.FromJSON(t, arrow.PrimitiveTypes.Int8, `[1,0,null]`), bool8, "", "[true,false,null]"},
		{"unsigned indices", withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1,null]`, trees.FromJSON(t, arrow.BinaryTypes.String, `["a","b"]`)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.BinaryTypes.String}, "", ""},
		{"other indices", withDictionary(t, arrow.PrimitiveTypes.Int8, `[0]`, trees.FromJSON(t, arrow.BinaryTypes.String, `["a"]`)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}, "array.type", ""},
		{"other values", withDictionary(t, arrow.PrimitiveTypes.Int8, `[0]`, trees.FromJSON(t, arrow.BinaryTypes.String, `["a"]`)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.LargeString}, "array.dictionary.type = utf8, want large_utf8", ""},
		{"no rows, and keys that libcudf has lost", withDictionary(t, arrow.PrimitiveTypes.Int32, `[]`, trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[]`)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.BinaryTypes.StringView}, "", ""},
		{"no rows below", structOf([]arrow.Array{withDictionary(t, arrow.PrimitiveTypes.Int32, `[]`, trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[]`))}), arrow.StructOf(nullable("f0", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String})), "", ""},
		{"no dictionary of no rows", trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[]`), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, "array.type", ""},
		{"other text", trees.FromJSON(t, arrow.BinaryTypes.String, `["a"]`), arrow.BinaryTypes.StringView, "array.type = utf8, want string_view", ""},
		{"other fields", structOf([]arrow.Array{lists}), arrow.StructOf(), "array.type", ""},
		{"a field", structOf([]arrow.Array{lists}), arrow.StructOf(nullable("x", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8))), "array.children[0].children[0].type = int16, want int8", ""},
		{"a number", trees.FromJSON(t, int16s, `[1]`), arrow.FixedSizeListOf(1, int16s), "array.type", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			there := copiedTo(t, gpu, c.in)
			if c.err != "" {
				_, err := FromCuDF(t.Context(), there, []arrow.DataType{c.want})
				require.ErrorIs(t, err, arrow.ErrType)
				require.ErrorContains(t, err, "cdevice: from cuDF: "+c.err)
				return
			}
			back := fromCuDF(t, there, c.want)
			assert.Equal(t, c.want, back.Nodes[0].Type)
			wantJSON, err := c.in.MarshalJSON()
			require.NoError(t, err)
			if c.json != "" {
				wantJSON = []byte(c.json)
			}
			gotJSON, err := hostOf(t, back).MarshalJSON()
			require.NoError(t, err)
			assert.JSONEq(t, string(wantJSON), string(gotJSON))
		})
	}
}

// Lists that all have the width are lists of a fixed size already, wherever they are; only nulls, and slices of
// the child that do not begin where its lists do, are copied.
func TestFromCuDFSharesTheMemory(t *testing.T) {
	gpu := oneGPU(t)
	fixed := arrow.FixedSizeListOf(2, arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Int16))
	const text = `[[[1],[2]],[[3],[4]],[[5],[6]]]`
	whole := copiedTo(t, gpu, trees.FromJSON(t, arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int16)), text))
	want := trees.FromJSON(t, fixed, text)
	before := DeviceCopies.Load()
	for _, cut := range [][2]int64{{0, 3}, {1, 3}, {2, 2}} {
		back := fromCuDF(t, trees.Slice(whole, cut[0], cut[1]), fixed)
		assert.Equal(t, before, DeviceCopies.Load(), "a copy")
		sameOnHost(t, array.NewSlice(want, cut[0], cut[1]), back)
	}
}

// Types of every kind of libcudf's, at the edges of what it imports.
func TestForCuDFTakesEmptyAndNestedTypes(t *testing.T) {
	gpu := oneGPU(t)
	views := arrow.BinaryTypes.StringView
	for name, arr := range map[string]arrow.Array{
		"list of null":        trees.FromJSON(t, arrow.ListOf(arrow.Null), `[[null,null],null,[]]`),
		"struct of null":      structOf([]arrow.Array{array.NewNull(3)}, 1),
		"empty views":         trees.FromJSON(t, views, `[]`),
		"inline views":        trees.FromJSON(t, views, `["a","bb",null]`),
		"views in buffers":    trees.FromJSON(t, views, `["a text that is longer than twelve",null,"b"]`),
		"list of views":       trees.FromJSON(t, arrow.ListOf(views), `[["a","a text that is longer than twelve"],null,[]]`),
		"dictionary of views": withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1]`, trees.FromJSON(t, views, `["a","a text that is longer than twelve"]`)),
	} {
		t.Run(name, func(t *testing.T) { sameOnHost(t, arr, forCuDF(t, copiedTo(t, gpu, arr), false)) })
	}
}

// An extension type is its storage to libcudf, and that is what is accepted or changed.
func TestForCuDFGivesTheStorageOfExtensions(t *testing.T) {
	gpu := oneGPU(t)
	storage := trees.FromJSON(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8), `[[1,2],null,[3,4]]`)
	ext := extensions.NewOpaqueType(storage.DataType(), "point", "us")
	arr := array.NewExtensionArrayWithStorage(ext, storage)
	given := forCuDF(t, copiedTo(t, gpu, arr), false)
	assert.True(t, arrow.TypeEqual(arrow.ListOf(arrow.PrimitiveTypes.Int8), given.Nodes[0].Type), "%s", given.Nodes[0].Type)
	sameOnHost(t, arr, fromCuDF(t, given, ext))
}
