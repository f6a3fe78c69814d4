package cdevice_test

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

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

func nullable(name string, dt arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: dt, Nullable: true}
}

// forCuDF gives libcudf an array of a type whose length is claimed: no memory is behind it.
func forCuDF(t *testing.T, gpu device.Device, dt arrow.DataType, data cdevice.ArrayData) (*cdevice.Array, error) {
	t.Helper()
	a, err := cdevice.NewArray(gpu, dt, data, cdevice.Lifetime{})
	require.NoError(t, err)
	defer a.Release()
	return a.ForCuDF(background)
}

// libcudf counts rows and elements of lists with 32 bits, and has one more offset than rows.
func TestForCuDFRefusesMoreRowsThanItCounts(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	m, err := gpu.Allocate(background, 64, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Free(nil)) }()
	p := m.Ptr()
	fixed := func(n int64, count int32) (arrow.DataType, cdevice.ArrayData) {
		return arrow.FixedSizeListOf(count, arrow.Null), cdevice.ArrayData{Length: n, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{{Length: n * int64(count)}}}
	}
	wide, wideData := fixed(1<<16, 1<<15)
	many, manyData := fixed(math.MaxInt32, 1)
	for _, c := range []struct {
		dt   arrow.DataType
		data cdevice.ArrayData
		want string
	}{
		{arrow.Null, cdevice.ArrayData{Length: 1 << 31}, "array.length = 2147483648, want at most 2147483647 (cuDF)"},
		{arrow.PrimitiveTypes.Int8, cdevice.ArrayData{Length: 1 << 31, Buffers: []device.Ptr{0, p}}, "array.length = 2147483648, want at most 2147483647 (cuDF)"},
		{arrow.BinaryTypes.String, cdevice.ArrayData{Length: math.MaxInt32, Buffers: []device.Ptr{0, p, p}}, "array.length = 2147483647, want at most 2147483646 (cuDF)"},
		{arrow.BinaryTypes.LargeString, cdevice.ArrayData{Length: math.MaxInt32, Buffers: []device.Ptr{0, p, p}}, "array.length = 2147483647, want at most 2147483646 (cuDF)"},
		{arrow.BinaryTypes.StringView, cdevice.ArrayData{Length: math.MaxInt32, Buffers: []device.Ptr{0, p}}, "array.length = 2147483647, want at most 2147483646 (cuDF)"},
		{arrow.ListOf(arrow.Null), cdevice.ArrayData{Length: math.MaxInt32, Buffers: []device.Ptr{0, p}, Children: []cdevice.ArrayData{{}}}, "array.length = 2147483647, want at most 2147483646 (cuDF)"},
		{arrow.ListOf(arrow.Null), cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, p}, Children: []cdevice.ArrayData{{Length: 1 << 31}}}, "array.children[0].length = 2147483648, want at most 2147483647 (cuDF)"},
		{wide, wideData, "array.length = 65536, want at most 65535 lists of 32768 elements (cuDF)"},
		{many, manyData, "array.length = 2147483647, want at most 2147483646 (cuDF)"},
		{
			arrow.StructOf(nullable("x", arrow.Null)),
			cdevice.ArrayData{Length: 1, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{{Length: 1 << 31}}},
			"array.children[0].length = 2147483648, want at most 2147483647 (cuDF)",
		},
	} {
		_, err := forCuDF(t, gpu, c.dt, c.data)
		require.ErrorIs(t, err, arrow.ErrNotImplemented, "%s", c.dt)
		require.ErrorContains(t, err, "cdevice: for cuDF: "+c.want)
	}
	most, err := forCuDF(t, gpu, arrow.Null, cdevice.ArrayData{Length: math.MaxInt32})
	require.NoError(t, err)
	assert.EqualValues(t, math.MaxInt32, most.NullCount())
	most.Release()
}

// Bytes are no rows: large_utf8 may have more than 32 bits count, and a batch must have a column to have rows.
func TestForCuDFRefusesABatchWithoutColumns(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	b, err := cdevice.NewRecordBatch(gpu, arrow.NewSchema(nil, nil), 3, nil, cdevice.Lifetime{})
	require.NoError(t, err)
	_, err = b.ForCuDF(background)
	assert.ErrorIs(t, err, arrow.ErrNotImplemented)
	assert.ErrorContains(t, err, "cdevice: for cuDF: columns = 0, want at least one (cuDF)")
	b.Release()
}

// A time zone is lost in libcudf, so the caller chooses that, wherever in a column it is; it comes back by FromCuDF.
func TestForCuDFTimeZones(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	zoned := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "Europe/Berlin"}
	moments := `["2026-11-20 09:10:11Z",null,"1969-12-31 23:59:59Z"]`
	for path, dt := range map[string]arrow.DataType{
		"array.type":                         zoned,
		"array.children[0].type":             arrow.ListOf(zoned),
		"array.children[1].children[0].type": arrow.StructOf(nullable("a", arrow.Null), nullable("b", arrow.ListOf(zoned))),
		"array.dictionary.type":              &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: zoned},
	} {
		var arr arrow.Array
		switch dt.ID() {
		case arrow.LIST:
			arr = listOver(fromJSON(t, zoned, moments))
		case arrow.STRUCT:
			arr = structOf([]arrow.Array{array.NewNull(3), listOver(fromJSON(t, zoned, moments))})
		default:
			arr = fromJSON(t, dt, moments)
		}
		there, err := copyArray(background, arr, gpu)
		require.NoError(t, err)
		_, err = there.ForCuDF(background)
		require.ErrorIs(t, err, arrow.ErrNotImplemented)
		require.ErrorContains(t, err, "cdevice: for cuDF: "+path+" = timestamp[us, tz=Europe/Berlin], want a timestamp without a time zone, or the choice to lose it (cuDF)")
		fitted, err := there.ForCuDF(background, cdevice.WithTimeZoneLoss())
		require.NoError(t, err)
		assert.Equal(t, there.Buffers(), fitted.Buffers())
		assert.Same(t, there.DataType(), fitted.DataType(), "the zone is still in our schema")
		there.Release()
		fitted.Release()
	}
	// As libcudf exports what it took: without zones.
	plain := fromJSON(t, &arrow.TimestampType{Unit: arrow.Microsecond}, `["2026-11-20 09:10:11",null]`)
	from, err := copyArray(background, plain, gpu)
	require.NoError(t, err)
	back, err := from.FromCuDF(background, zoned)
	require.NoError(t, err)
	sameOnHost(t, fromJSON(t, zoned, `["2026-11-20 09:10:11Z",null]`), back)
	back.Release()
	_, err = from.FromCuDF(background, &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"})
	assert.ErrorIs(t, err, arrow.ErrType)
	from.Release()
}

// What libcudf would throw at, or read wrongly, is refused by the path of the type.
func TestForCuDFRefusesByName(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	long := make([]string, 129)
	for i := range long {
		long[i] = fmt.Sprint(i)
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.AppendValues(long, nil)
	many := b.NewArray()
	b.Release()
	lists := fromJSON(t, arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1],[2]]`)
	for want, arr := range map[string]arrow.Array{
		"array.dictionary.length = 129, want at most 128, the values that int8 can index (cuDF)":                  withDictionary(t, arrow.PrimitiveTypes.Uint8, `[0,128]`, many),
		"array.dictionary.type = list<item: int8, nullable>, want values that are neither nested nor null (cuDF)": withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1]`, lists),
		"array.dictionary.type = null, want values that are neither nested nor null (cuDF)":                       withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1]`, array.NewNull(2)),
		"array.dictionary.type = binary, want a type that cuDF has":                                               withDictionary(t, arrow.PrimitiveTypes.Int8, `[0]`, fromJSON(t, arrow.BinaryTypes.Binary, `["AQI="]`)),
		"array.children[0].type = large_list<item: int8, nullable>, want a type that cuDF has":                    listOver(fromJSON(t, arrow.LargeListOf(arrow.PrimitiveTypes.Int8), `[[1]]`)),
		"array.children[0].dictionary.length = 129, want at most 128, the values that int8 can index (cuDF)":      listOver(withDictionary(t, arrow.PrimitiveTypes.Uint8, `[0,128]`, many)),
		"array.children[1].type = map<utf8, int64, items_nullable>, want a type that cuDF has":                    structOf([]arrow.Array{array.NewNull(1), fromJSON(t, arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), `[[]]`)}),
	} {
		there, err := copyArray(background, arr, gpu)
		require.NoError(t, err)
		_, err = there.ForCuDF(background)
		require.ErrorIs(t, err, arrow.ErrNotImplemented)
		assert.EqualError(t, err, "cdevice: for cuDF: "+want+": not implemented")
		there.Release()
	}
	fits := withDictionary(t, arrow.PrimitiveTypes.Uint8, `[0,127]`, array.NewSlice(many, 0, 128))
	there, err := copyArray(background, fits, gpu)
	require.NoError(t, err)
	fitted, err := there.ForCuDF(background)
	require.NoError(t, err)
	assert.Equal(t, there.Buffers(), fitted.Buffers(), "only the label changes")
	assert.Equal(t, arrow.INT8, fitted.DataType().(*arrow.DictionaryType).IndexType.ID())
	there.Release()
	fitted.Release()
}

// FromCuDF gives back what ForCuDF and libcudf change: nothing else, and not the values.
func TestFromCuDF(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	int16s := arrow.PrimitiveTypes.Int16
	bool8 := extensions.NewBool8Type()
	lists := fromJSON(t, arrow.ListOf(int16s), `[[1,2],null,[5,6]]`)
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
		{"no lists", fromJSON(t, lists.DataType(), `[]`), arrow.FixedSizeListOf(3, int16s), "", ""},
		{"a precision", fromJSON(t, &arrow.Decimal128Type{Precision: 38, Scale: 2}, `["1.25"]`), &arrow.Decimal128Type{Precision: 10, Scale: 2}, "", ""},
		{"another scale", fromJSON(t, &arrow.Decimal128Type{Precision: 38, Scale: 2}, `["1.25"]`), &arrow.Decimal128Type{Precision: 38, Scale: 3}, "array.type = decimal(38, 2), want decimal(38, 3)", ""},
		{"another decimal", fromJSON(t, &arrow.Decimal64Type{Precision: 18, Scale: 2}, `["1.25"]`), &arrow.Decimal128Type{Precision: 38, Scale: 2}, "array.type", ""},
		{"an extension", fromJSON(t, arrow.PrimitiveTypes.Int8, `[1,0,null]`), bool8, "", "[true,false,null]"},
		{"unsigned indices", withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1,null]`, fromJSON(t, arrow.BinaryTypes.String, `["a","b"]`)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint8, ValueType: arrow.BinaryTypes.String}, "", ""},
		{"other indices", withDictionary(t, arrow.PrimitiveTypes.Int8, `[0]`, fromJSON(t, arrow.BinaryTypes.String, `["a"]`)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}, "array.type", ""},
		{"other values", withDictionary(t, arrow.PrimitiveTypes.Int8, `[0]`, fromJSON(t, arrow.BinaryTypes.String, `["a"]`)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.LargeString}, "array.dictionary.type = utf8, want large_utf8", ""},
		{"other text", fromJSON(t, arrow.BinaryTypes.String, `["a"]`), arrow.BinaryTypes.StringView, "array.type = utf8, want string_view", ""},
		{"other fields", structOf([]arrow.Array{lists}), arrow.StructOf(), "array.type", ""},
		{"a field", structOf([]arrow.Array{lists}), arrow.StructOf(nullable("x", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8))), "array.children[0].children[0].type = int16, want int8", ""},
		{"a number", fromJSON(t, int16s, `[1]`), arrow.FixedSizeListOf(1, int16s), "array.type", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			there, err := copyArray(background, c.in, gpu)
			require.NoError(t, err)
			defer there.Release()
			back, err := there.FromCuDF(background, c.want)
			if c.err != "" {
				require.ErrorIs(t, err, arrow.ErrType)
				require.ErrorContains(t, err, "cdevice: from cuDF: "+c.err)
				return
			}
			require.NoError(t, err)
			defer back.Release()
			assert.Equal(t, c.want, back.DataType())
			host, err := back.CopyToHost(background, nil)
			require.NoError(t, err)
			defer host.Release()
			require.NoError(t, validate(host))
			wantJSON, err := c.in.MarshalJSON()
			require.NoError(t, err)
			if c.json != "" {
				wantJSON = []byte(c.json)
			}
			gotJSON, err := host.MarshalJSON()
			require.NoError(t, err)
			assert.JSONEq(t, string(wantJSON), string(gotJSON))
		})
	}
	host, err := cdevice.WrapArray(lists, device.CPUDevice())
	require.NoError(t, err)
	_, err = host.FromCuDF(background, lists.DataType())
	assert.ErrorIs(t, err, device.ErrNotSupported)
	host.Release()
}

// Lists that all have the width are lists of a fixed size already, wherever they are; only nulls, and slices of
// the child that do not begin where its lists do, are copied.
func TestFromCuDFSharesTheMemory(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	fixed := arrow.FixedSizeListOf(2, arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Int16))
	in := fromJSON(t, arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int16)), `[[[1],[2]],[[3],[4]],[[5],[6]]]`)
	want := fromJSON(t, fixed, `[[[1],[2]],[[3],[4]],[[5],[6]]]`)
	whole, err := copyArray(background, in, gpu)
	require.NoError(t, err)
	before := cdevice.ReadStats().DeviceCopies
	for _, cut := range [][2]int64{{0, 3}, {1, 3}, {2, 2}} {
		part, err := whole.Slice(cut[0], cut[1])
		require.NoError(t, err)
		back, err := part.FromCuDF(background, fixed)
		require.NoError(t, err)
		assert.Equal(t, before, cdevice.ReadStats().DeviceCopies, "a copy")
		sameOnHost(t, array.NewSlice(want, cut[0], cut[1]), back)
		part.Release()
		sameOnHost(t, array.NewSlice(want, cut[0], cut[1]), throughReleased(t, back, gpu))
	}
	whole.Release()

	b, err := cdevice.CopyToDevice(background, array.NewRecordBatch(arrow.NewSchema([]arrow.Field{nullable("", in.DataType())}, nil), []arrow.Array{in}, 3), gpu)
	require.NoError(t, err)
	_, err = b.FromCuDF(background, arrow.NewSchema(nil, nil))
	assert.ErrorIs(t, err, arrow.ErrType)
	assert.ErrorContains(t, err, "cdevice: from cuDF: columns = 1, want 0")
	_, err = b.FromCuDF(background, arrow.NewSchema([]arrow.Field{nullable("x", arrow.FixedSizeListOf(3, arrow.Null))}, nil))
	assert.ErrorContains(t, err, "cdevice: from cuDF: column[0].children[0].type = list<item: int16, nullable>, want null")
	schema := arrow.NewSchema([]arrow.Field{nullable("x", fixed)}, nil)
	back, err := b.FromCuDF(background, schema)
	require.NoError(t, err)
	assert.Same(t, schema, back.Schema())
	b.Release()
	back.Release()
}

// throughReleased sends an array through C, and releases it. The result is released at the end of the test.
func throughReleased(t *testing.T, a *cdevice.Array, gpu device.Device) *cdevice.Array {
	t.Helper()
	back := throughC(t, a, cdevice.WithDevice(gpu))
	a.Release()
	t.Cleanup(back.Release)
	return back
}

// Types of every kind of libcudf's, at the edges of what it imports.
func TestForCuDFTakesEmptyAndNestedTypes(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	views := arrow.BinaryTypes.StringView
	for name, arr := range map[string]arrow.Array{
		"list of null":        fromJSON(t, arrow.ListOf(arrow.Null), `[[null,null],null,[]]`),
		"struct of null":      structOf([]arrow.Array{array.NewNull(3)}, 1),
		"empty views":         fromJSON(t, views, `[]`),
		"inline views":        fromJSON(t, views, `["a","bb",null]`),
		"views in buffers":    fromJSON(t, views, `["a text that is longer than twelve",null,"b"]`),
		"list of views":       fromJSON(t, arrow.ListOf(views), `[["a","a text that is longer than twelve"],null,[]]`),
		"dictionary of views": withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1]`, fromJSON(t, views, `["a","a text that is longer than twelve"]`)),
	} {
		there, err := copyArray(background, arr, gpu)
		require.NoError(t, err)
		fitted, err := there.ForCuDF(background)
		require.NoError(t, err, name)
		sameOnHost(t, arr, fitted)
		there.Release()
		fitted.Release()
	}
}

// An extension type is its storage to libcudf, and that is what is refused, accepted or changed.
func TestForCuDFGivesTheStorageOfExtensions(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	storage := fromJSON(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8), `[[1,2],null,[3,4]]`)
	ext := extensions.NewOpaqueType(storage.DataType(), "point", "us")
	arr := array.NewExtensionArrayWithStorage(ext, storage)
	defer arr.Release()
	there, err := copyArray(background, arr, gpu)
	require.NoError(t, err)
	fitted, err := there.ForCuDF(background)
	require.NoError(t, err)
	assert.True(t, arrow.TypeEqual(arrow.ListOf(arrow.PrimitiveTypes.Int8), fitted.DataType()), "%s", fitted.DataType())
	back, err := fitted.FromCuDF(background, ext)
	require.NoError(t, err)
	sameOnHost(t, arr, back)
	for _, a := range []*cdevice.Array{there, fitted, back} {
		a.Release()
	}
	refused := array.NewExtensionArrayWithStorage(extensions.NewOpaqueType(arrow.BinaryTypes.Binary, "blob", "us"), fromJSON(t, arrow.BinaryTypes.Binary, `["AQI="]`))
	defer refused.Release()
	there, err = copyArray(background, refused, gpu)
	require.NoError(t, err)
	_, err = there.ForCuDF(background)
	assert.ErrorIs(t, err, arrow.ErrNotImplemented)
	assert.ErrorContains(t, err, "cdevice: for cuDF: array.type = extension")
	there.Release()
}
