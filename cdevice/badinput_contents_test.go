package cdevice_test

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// invalidAt makes element i null without a word to null_count.
func invalidAt(i int) corruption {
	return func(_ *foreignArray, n *foreignNode) { n.buffers[0][i/8] &^= 1 << (i % 8) }
}

// view overwrites view i: a length, then a prefix, a buffer index and an offset.
func viewAt(i int, size int32, rest ...int32) corruption {
	return func(_ *foreignArray, n *foreignNode) {
		words := valuesAt[int32](n, 1)[4*i : 4*i+4]
		words[0] = size
		copy(words[4-len(rest):], rest)
	}
}

func TestBadOffsets(t *testing.T) {
	const most32, most64 = math.MaxInt32, int64(math.MaxInt64)
	testContents(t, []badRow{
		{name: "first negative, utf8", base: "utf8", set: put[int32](1, 0, -1), want: "offsets[0] = -1, want at least 0"},
		{name: "first negative, large_binary", base: "large_binary", set: put[int64](1, 0, -1), want: "offsets[0] = -1, want at least 0"},
		{name: "first negative, list", base: "list", set: put[int32](1, 0, -1), want: "offsets[0] = -1, want at least 0"},
		{name: "decreasing, utf8", base: "utf8/valid", set: put[int32](1, 2, 0), want: "offsets[2] = 0, want at least 1, as before it"},
		{name: "decreasing, binary", base: "binary/valid", set: put[int32](1, 3, 1), want: "offsets[3] = 1, want at least 2, as before it"},
		{name: "decreasing, large_utf8", base: "large_utf8/valid", set: put(1, 1, most64), want: "offsets[2] = 4, want at least 9223372036854775807, as before it"},
		{name: "decreasing, list", base: "list/valid", set: put[int32](1, 1, 9), want: "offsets[2] = 4, want at least 9, as before it"},
		{name: "decreasing, map", base: "map/valid", set: put[int32](1, 1, 4), want: "offsets[2] = "},
		{name: "decreasing at a null", base: "utf8", set: put[int32](1, 2, 0), want: "offsets[2] = 0, want at least 1, as before it"},
		{name: "int32 overflow, utf8", base: "utf8/valid", set: put[int32](1, 3, most32), want: "offsets[4] = "},
		{name: "int32 wrapped around, utf8", base: "utf8/valid", set: put[int32](1, 3, math.MinInt32), want: "offsets[3] = -2147483648, want at least "},
		{name: "last negative, utf8", base: "utf8/valid", set: put[int32](1, 6, -1), want: "offsets[6] = -1, want 0 to "},
		{name: "last least, large_utf8", base: "large_utf8/valid", set: put[int64](1, 6, math.MinInt64), want: "offsets[6] = -9223372036854775808, want 0 to "},
		{name: "last beyond any memory, large_utf8", base: "large_utf8/valid", set: put(1, 6, most64), want: "offsets[6] = 9223372036854775807, want 0 to "},
		{name: "last negative, list", base: "list/valid", set: put[int32](1, 5, -1), want: "offsets[5] = -1, want at least "},
		{name: "last beyond the child, list", base: "list/valid", set: put[int32](1, 5, 99), want: "offsets[5] = 99, want at most 9"},
		{name: "last beyond the child, large_list", base: "large_list/valid", set: put(1, 5, most64), want: "offsets[5] = 9223372036854775807, want at most 9"},
		{name: "last beyond the child, map", base: "map/valid", set: put[int32](1, 4, 5), want: "offsets[4] = 5, want at most 4"},
		{name: "child shorter than the last", base: "list/valid", set: inChild(0, func(_ *foreignArray, n *foreignNode) { n.Length--; n.NullCount = -1 }), want: "offsets[5] = 9, want at most 8"},
		{name: "of a child", base: "list_utf8/valid", set: inChild(0, put[int32](1, 2, 0)), want: "children[0].offsets[2] = 0, want at least 1"},
		{name: "of a struct's child", base: "struct/valid", set: inChild(1, put[int32](1, 1, -3)), want: "children[1].offsets[1] = -3, want at least 0"},
		{name: "of a dictionary", base: "dictionary_int64/valid", set: inDict(put[int32](1, 1, 50)), want: "dictionary.offsets[2] = 2, want at least 50"},
		{name: "of run-end encoded values", base: "run_end_encoded_int64", set: inChild(1, put[int32](1, 1, 50)), want: "children[1].offsets[2] = 2, want at least 50"},
		{name: "of a union's child", base: "dense_union", set: inChild(1, put[int32](1, 1, 50)), want: "children[1].offsets[2] = 7, want at least 50"},
		{name: "of a map's keys", base: "map/valid", set: inChild(0, inChild(0, put[int32](1, 1, 50))), want: "children[0].children[0].offsets[2] = 2, want at least 50"},

		{name: "list view, offset -1", base: "list_view/valid", set: put[int32](1, 1, -1), want: "offsets[1] = -1, want 0 to "},
		{name: "list view, offset beyond", base: "list_view/valid", set: put[int32](1, 1, most32), want: "offsets[1] = 2147483647, want 0 to "},
		{name: "list view, size -1", base: "list_view/valid", set: put[int32](2, 0, -1), want: "sizes[0] = -1, want 0 to "},
		{name: "list view, size beyond", base: "list_view/valid", set: put[int32](2, 0, 99), want: "sizes[0] = 99, want 0 to "},
		{name: "list view, offset and size overflow", base: "list_view/valid", set: both(put[int32](1, 0, 1), put[int32](2, 0, most32)), want: "sizes[0] = 2147483647, want 0 to "},
		{name: "large list view, offset and size overflow", base: "large_list_view/valid", set: both(put[int64](1, 0, 1), put(2, 0, most64)), want: "sizes[0] = 9223372036854775807, want 0 to "},
		{name: "large list view, size least", base: "large_list_view/valid", set: put[int64](2, 3, math.MinInt64), want: "sizes[3] = -9223372036854775808, want 0 to "},
		{name: "list view, the other way round", base: "list_view/valid", set: func(_ *foreignArray, n *foreignNode) {
			for _, i := range []int{1, 2} {
				v := valuesAt[int32](n, i)
				v[0], v[3] = v[3], v[0]
			}
		}},
	})
}

func TestBadText(t *testing.T) {
	testContents(t, []badRow{
		{name: "utf8", base: "utf8", set: put[byte](2, 0, 0xff), want: "values[0], want valid UTF-8"},
		{name: "large_utf8", base: "large_utf8/valid", set: put[byte](2, 2, 0xc0), want: "values[1], want valid UTF-8"},
		{name: "a character cut in two", base: "utf8/valid", set: func(_ *foreignArray, n *foreignNode) { valuesAt[int32](n, 1)[5]-- }, want: "values[4], want valid UTF-8"},
		{name: "a surrogate", base: "utf8/valid", set: func(_ *foreignArray, n *foreignNode) { copy(n.buffers[2][1:], "\xed\xa0\x80") }, want: "values[1], want valid UTF-8"},
		{name: "inline view", base: "utf8_view", set: put[byte](1, 4, 0xff), want: "values[0], want valid UTF-8"},
		{name: "long view", base: "utf8_view", set: put[byte](2, 20, 0xff), want: "values[3], want valid UTF-8"},
		{name: "dictionary", base: "dictionary_int8", set: inDict(put[byte](2, 0, 0xff)), want: "dictionary.values[0], want valid UTF-8"},
		{name: "dictionary below a list", base: "list_dictionary", set: inChild(0, inDict(put[byte](2, 0, 0xff))), want: "children[0].dictionary.values[0], want valid UTF-8"},
		{name: "child", base: "list_utf8", set: inChild(0, put[byte](2, 1, 0xff)), want: "children[0].values[1], want valid UTF-8"},
		{name: "map keys", base: "map", set: inChild(0, inChild(0, put[byte](2, 0, 0xff))), want: "children[0].children[0].values[0], want valid UTF-8"},
		{name: "run-end encoded", base: "run_end_encoded_int16", set: inChild(1, put[byte](2, 2, 0xff)), want: "children[1].values[2], want valid UTF-8"},
		{name: "in a null", base: "utf8/valid", set: func(f *foreignArray, n *foreignNode) {
			n.pointers[0] = sliceAddress(allocC[byte](f.arena, slack))
			n.NullCount = n.Length
			n.buffers[2][0] = 0xff
		}},
		{name: "binary", base: "binary", set: put[byte](2, 0, 0xff)},
		{name: "binary view", base: "binary_view", set: put[byte](1, 4, 0xff)},
	})
}

func TestBadViews(t *testing.T) {
	testContents(t, []badRow{
		{name: "length -1", base: "utf8_view", set: viewAt(0, -1), want: "views[0].length = -1, want at least 0"},
		{name: "length least", base: "binary_view", set: viewAt(0, math.MinInt32), want: "views[0].length = -2147483648, want at least 0"},
		{name: "length beyond the buffer", base: "utf8_view", set: viewAt(3, math.MaxInt32), want: "views[3].offset = 0, want 0 to "},
		{name: "buffer -1", base: "utf8_view", set: viewAt(3, 25, -1, 0), want: "views[3].buffer_index = -1, want 0 to 0"},
		{name: "buffer beyond", base: "utf8_view", set: viewAt(3, 25, 1, 0), want: "views[3].buffer_index = 1, want 0 to 0"},
		{name: "buffer most", base: "binary_view", set: viewAt(2, 16, math.MaxInt32, 0), want: "views[2].buffer_index = 2147483647, want 0 to 0"},
		{name: "no buffers at all", base: "utf8_view", set: func(f *foreignArray, n *foreignNode) {
			n.NBuffers, n.pointers[2] = 3, 0
		}, want: "views[3].buffer_index = 0, want "},
		{name: "offset -1", base: "utf8_view", set: viewAt(3, 25, 0, -1), want: "views[3].offset = -1, want 0 to "},
		{name: "offset beyond", base: "utf8_view", set: viewAt(3, 40, 0, 31), want: "views[3].offset = 31, want 0 to 30"},
		{name: "offset most", base: "binary_view", set: viewAt(2, 16, 0, math.MaxInt32), want: "views[2].offset = 2147483647, want 0 to 0"},
		{name: "prefix of something else", base: "utf8_view", set: put[byte](1, 3*16+4, 'X'), want: "views[3].prefix = "},
		{name: "range beyond a shrunken buffer", base: "binary_view", set: put[int64](3, 0, 15), want: "views[2].offset = 0, want 0 to -1"},
		{name: "anything in a null", base: "utf8_view", set: viewAt(1, math.MaxInt32, -7, -7)},
		{name: "a range shared", base: "binary_view", set: func(_ *foreignArray, n *foreignNode) {
			copy(n.buffers[1][:16], n.buffers[1][2*16:3*16])
		}},
	})
}

func TestBadPadding(t *testing.T) {
	testContents(t, []badRow{
		{name: "behind a short value", base: "utf8_view", set: put[byte](1, 15, 1), want: "views[0].bytes[15] = 1, want 0 behind a value of "},
		{name: "at once behind it", base: "binary_view", set: func(_ *foreignArray, n *foreignNode) {
			v := valuesAt[byte](n, 1)
			v[4+v[0]] = 0xff
		}, want: "views[0].bytes["},
		{name: "behind an empty value", base: "utf8_view", set: both(viewAt(0, 0), put[byte](1, 4, 'x')), want: "views[0].bytes[4] = 120, want 0 behind a value of 0 bytes"},
		{name: "below a list", typ: arrow.ListOf(arrow.BinaryTypes.StringView), text: `[["a"],["b"]]`, set: inChild(0, put[byte](1, 16+12, 7)), want: "children[0].views[1].bytes[12] = 7"},
		{name: "behind a value of twelve bytes", typ: arrow.BinaryTypes.StringView, text: `["abcdefghijkl"]`, set: put[byte](1, 15, 'X')},
		{name: "of a null", base: "utf8_view", set: put[byte](1, 16+15, 1)},
		{name: "of a long value, which has none", base: "utf8_view", set: func(*foreignArray, *foreignNode) {}},
		{name: "before the offset", base: "utf8_view/sliced", set: put[byte](1, 15, 1)},
	})
}

// nullBits gives n a bitmap, which is all zero, and a null count.
func nullBits(count int64) corruption {
	return func(f *foreignArray, n *foreignNode) {
		n.pointers[0], n.NullCount = sliceAddress(allocC[byte](f.arena, slack)), count
	}
}

// ofEntries and ofKeys are nodes below a map.
func ofEntries(set corruption) corruption { return inChild(0, set) }
func ofKeys(set corruption) corruption    { return inChild(0, inChild(0, set)) }

func TestBadMaps(t *testing.T) {
	dt := arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64)
	const text = `[[{"key":"a","value":1}],[{"key":"b","value":null}]]`
	one := func(f *foreignArray, n *foreignNode) { // of two
		nullBits(1)(f, n)
		f.blocks[len(f.blocks)-1][0] = 1
	}
	rows := []badRow{
		{name: "null keys", set: ofKeys(nullBits(2)), want: "children[0].children[0].null_count = 2, want 0 for the keys of a map"},
		{name: "null keys that are not counted", set: ofKeys(nullBits(-1)), want: "children[0].children[0].null_count = 2, want 0 for the keys of a map"},
		{name: "one null key", set: ofKeys(one), want: "children[0].children[0].null_count = 1, want 0 for the keys of a map"},
		{name: "null entries", set: ofEntries(nullBits(-1)), want: "children[0].null_count = 2, want 0 for the entries of a map"},
		{name: "one null entry", set: ofEntries(one), want: "children[0].null_count = 1, want 0 for the entries of a map"},
		{name: "a null key in no element", set: both(ofKeys(one), both(put[int32](1, 1, 1), put[int32](1, 2, 1))), want: "children[0].children[0].null_count = 1"},
		{name: "a null key in a null element", set: both(ofKeys(one), func(f *foreignArray, n *foreignNode) {
			nullBits(1)(f, n)
			f.blocks[len(f.blocks)-1][0] = 1
		}), want: "children[0].children[0].null_count = 1"},
		{name: "bits that are all set", set: ofKeys(func(f *foreignArray, n *foreignNode) {
			nullBits(-1)(f, n)
			f.blocks[len(f.blocks)-1][0] = 3
		})},
		{name: "null values", set: func(*foreignArray, *foreignNode) {}},
	}
	for i := range rows {
		rows[i].typ, rows[i].text = dt, text
	}
	rows = append(rows, badRow{
		name: "below a list", typ: arrow.ListOf(dt), text: `[` + text + `]`, set: inChild(0, ofKeys(nullBits(2))), want: "children[0].children[0].children[0].null_count = 2",
	}, badRow{
		name: "of an empty map", typ: dt, text: `[]`, set: ofEntries(func(f *foreignArray, n *foreignNode) {}),
	})
	testContents(t, rows)
}

func TestBadIndices(t *testing.T) {
	testContents(t, []badRow{
		{name: "int8 -1", base: "dictionary_int8", set: put[int8](1, 0, -1), want: "indices[0] = -1, want an index into 3 values"},
		{name: "int8 as long as the dictionary", base: "dictionary_int8", set: put[int8](1, 3, 3), want: "indices[3] = 3, want an index into 3 values"},
		{name: "int16", base: "dictionary_int16", set: put[int16](1, 2, math.MinInt16), want: "indices[2] = -32768, want an index into 3 values"},
		{name: "int32", base: "dictionary_int32", set: put[int32](1, 4, math.MaxInt32), want: "indices[4] = 2147483647, want an index into 3 values"},
		{name: "int64", base: "dictionary_int64", set: put[int64](1, 0, math.MinInt64), want: "indices[0] = -9223372036854775808, want an index into 3 values"},
		{name: "uint8", base: "dictionary_uint8", set: put[uint8](1, 0, 3), want: "indices[0] = 3, want an index into 3 values"},
		{name: "uint16", base: "dictionary_uint16", set: put[uint16](1, 0, math.MaxUint16), want: "indices[0] = 65535, want an index into 3 values"},
		{name: "uint32", base: "dictionary_uint32", set: put[uint32](1, 0, math.MaxUint32), want: "indices[0] = 4294967295, want an index into 3 values"},
		{name: "uint64", base: "dictionary_uint64", set: put[uint64](1, 0, math.MaxUint64), want: "indices[0] = 18446744073709551615, want an index into 3 values"},
		{name: "sliced", base: "dictionary_int8/sliced", set: put[int8](1, 2, 77), want: "indices[0] = 77, want an index into 3 values"},
		{name: "into a shorter dictionary", base: "dictionary_int8", set: inDict(func(_ *foreignArray, n *foreignNode) { n.Length, n.NullCount = 2, -1 }), want: "indices[4] = 2, want an index into 2 values"},
		{name: "into an empty dictionary", base: "dictionary_uint8", set: inDict(func(_ *foreignArray, n *foreignNode) { n.Length, n.NullCount = 0, 0 }), want: "indices[0] = 0, want an index into 0 values"},
		{name: "below a struct", base: "struct_dictionary", set: inChild(0, put[int32](1, 0, 9)), want: "children[0].indices[0] = 9, want an index into 1 values"},
		{name: "below a list", base: "list_dictionary", set: inChild(0, put[int32](1, 1, -9)), want: "children[0].indices[1] = -9, want an index into 3 values"},
		{name: "at a null", base: "dictionary_int32", set: put[int32](1, 1, -77)},
		{name: "before the offset", base: "dictionary_int32/sliced", set: put[int32](1, 0, 77)},
	})
}

func TestBadUnions(t *testing.T) {
	testContents(t, []badRow{
		{name: "sparse, type id between", base: "sparse_union", set: put[int8](0, 2, 6), want: "type_ids[2] = 6, want a type id of sparse_union<"},
		{name: "sparse, type id -1", base: "sparse_union", set: put[int8](0, 0, -1), want: "type_ids[0] = -1, want a type id of "},
		{name: "sparse, type id 127", base: "sparse_union", set: put[int8](0, 5, 127), want: "type_ids[5] = 127, want a type id of "},
		{name: "sparse, type id -128", base: "sparse_union", set: put[int8](0, 5, -128), want: "type_ids[5] = -128, want a type id of "},
		{name: "sparse, an index for an id", base: "sparse_union", set: put[int8](0, 0, 0), want: "type_ids[0] = 0, want a type id of "},
		{name: "sparse, sliced", base: "sparse_union/sliced", set: put[int8](0, 2, 0), want: "type_ids[0] = 0, want a type id of "},
		{name: "dense, type id 8", base: "dense_union", set: put[int8](0, 1, 8), want: "type_ids[1] = 8, want a type id of dense_union<"},
		{name: "dense, the other child", base: "dense_union", set: put[int8](0, 5, 7), want: "offsets[5] = 3, want 1 to 1"},
		{name: "dense, offset -1", base: "dense_union", set: put[int32](1, 0, -1), want: "offsets[0] = -1, want 0 to 3"},
		{name: "dense, offset beyond", base: "dense_union", set: put[int32](1, 5, 4), want: "offsets[5] = 4, want 2 to 3"},
		{name: "dense, offset most", base: "dense_union", set: put[int32](1, 1, math.MaxInt32), want: "offsets[1] = 2147483647, want 0 to 1"},
		{name: "dense, decreasing", base: "dense_union", set: put[int32](1, 3, 0), want: "offsets[3] = 0, want 1 to 3"},
		{name: "dense, child shorter", base: "dense_union", set: inChild(0, func(_ *foreignArray, n *foreignNode) { n.Length, n.NullCount = 3, -1 }), want: "offsets[5] = 3, want 2 to 2"},
		{name: "dense, child empty", base: "dense_union", set: inChild(1, func(_ *foreignArray, n *foreignNode) { n.Length, n.NullCount = 0, 0 }), want: "offsets[1] = 0, want 0 to -1"},
		{name: "dense, offset repeated", base: "dense_union", set: put[int32](1, 2, 0)},
	})
}

func TestBadRunEnds(t *testing.T) {
	testContents(t, []badRow{
		{name: "first 0", base: "run_end_encoded_int32", set: inChild(0, put[int32](1, 0, 0)), want: "run_ends[0] = 0, want more than 0"},
		{name: "first negative", base: "run_end_encoded_int16", set: inChild(0, put[int16](1, 0, -3)), want: "run_ends[0] = -3, want more than 0"},
		{name: "equal", base: "run_end_encoded_int64", set: inChild(0, put[int64](1, 1, 3)), want: "run_ends[1] = 3, want more than 3"},
		{name: "decreasing", base: "run_end_encoded_int32", set: inChild(0, put[int32](1, 1, 2)), want: "run_ends[1] = 2, want more than 3"},
		{name: "wrapped around", base: "run_end_encoded_int16", set: inChild(0, put[int16](1, 2, math.MinInt16)), want: "run_ends[2] = -32768, want more than 5"},
		{name: "last short of the length", only: asArray, base: "run_end_encoded_int32", set: length(7), want: "run_ends[2] = 6, want at least 7"},
		{name: "last short of offset and length", base: "run_end_encoded_int64", set: offset(1), want: "run_ends[2] = 6, want at least 7"},
		{name: "last beyond the length", base: "run_end_encoded_int64", set: inChild(0, put[int64](1, 2, math.MaxInt64))},
		{name: "more runs than needed", base: "run_end_encoded_int16/sliced", set: length(1), only: asArray},
	})
}

func TestBadNullCounts(t *testing.T) {
	testContents(t, []badRow{
		{name: "0 of 2", base: "int64", set: nulls(0), want: "null_count = 0, want 2, as the bitmap says"},
		{name: "1 of 2", base: "bool", set: nulls(1), want: "null_count = 1, want 2, as the bitmap says"},
		{name: "all of 2", base: "struct", set: nulls(6), want: "null_count = 6, want 2, as the bitmap says"},
		{name: "bitmap cleared", base: "utf8", set: invalidAt(0), want: "null_count = 2, want 3, as the bitmap says"},
		{name: "sliced", base: "int64/sliced", set: nulls(2), want: "null_count = 2, want 0, as the bitmap says"},
		{name: "in a child", base: "list_utf8", set: inChild(0, nulls(2)), want: "children[0].null_count = 2, want 1, as the bitmap says"},
		{name: "in a dictionary", base: "list_dictionary", set: inChild(0, nulls(0)), want: "children[0].null_count = 0, want 1, as the bitmap says"},
		{name: "-1 of 2", base: "fixed_size_list", set: nulls(-1)},
	})
}

// testContents runs rows of which the contents are bad in host memory, and in memory of a GPU: the errors
// are the same.
func testContents(t *testing.T, rows []badRow) {
	t.Helper()
	for i := range rows {
		rows[i].full, rows[i].is = true, arrow.ErrInvalid
		if rows[i].want != "" {
			rows[i].want = "cdevice: validate: @." + rows[i].want
		}
	}
	testRows(t, rows)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	for _, row := range rows {
		for _, w := range []way{asArray, asBatch} {
			if row.only == "" || row.only == w {
				t.Run(row.name+"/GPU "+string(w), func(t *testing.T) { row.runOnGPU(t, w, gpu) })
			}
		}
	}
}

func (row badRow) runOnGPU(t *testing.T, w way, gpu *cudaalloc.Device) {
	checkLeaks(t)
	f := row.make(t, w)
	defer f.free()
	row.set(f, f.base)
	defer f.upload(t, gpu)()
	got, err := validated(f.importWith(f.newSchema(t), cdevice.WithDevice(gpu)))
	if row.want != "" {
		assert.Nil(t, got)
		assert.ErrorContains(t, err, strings.ReplaceAll(row.want, "@", inGo(w, f.base.path)))
		assert.ErrorIs(t, err, row.is)
	} else if assert.NoError(t, err) {
		copied, err := copyToHost(got, nil)
		if assert.NoError(t, err, "what is accepted can be read") {
			copied.Release()
		}
		got.Release()
	}
	assertReleased(t, f, 1)
}

// upload moves the buffers to memory of the GPU, each to its own.
func (f *foreignArray) upload(t *testing.T, gpu *cudaalloc.Device) (free func()) {
	var all []device.Memory
	f.each(func(n *foreignNode) {
		for i, p := range n.pointers[:n.NBuffers] {
			if p == 0 || isView(n.typ) && i == int(n.NBuffers)-1 {
				continue
			}
			for _, b := range f.blocks {
				if at := p - sliceAddress(b); at < uintptr(len(b)) {
					mem, err := gpu.Allocate(background, int64(len(b))-int64(at), nil)
					require.NoError(t, err)
					all = append(all, mem)
					require.NoError(t, gpu.Copy([]device.Range{{Dst: mem.Ptr(), Src: device.Ptr(p), Size: mem.Size()}}, gpu.Legacy()))
					n.pointers[i] = uintptr(mem.Ptr())
				}
			}
		}
	})
	require.NoError(t, gpu.Legacy().Synchronize(background))
	f.device.DeviceType, f.device.DeviceID = int32(device.CUDA), 0
	return func() {
		for _, mem := range all {
			assert.NoError(t, mem.Free(nil))
		}
	}
}
