package validate

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// row is an array whose contents are changed, and the error of its validation.
type row struct {
	name string
	base string         // a case and its variant, as "utf8" (with nulls) or "utf8/valid"
	typ  arrow.DataType // or a type, with the values as JSON
	text string
	set  trees.Change
	want string // behind the name of the array; "": it is accepted
}

func (r row) array(t *testing.T) arrow.Array {
	t.Helper()
	if r.typ != nil {
		return trees.FromJSON(t, r.typ, r.text)
	}
	name, variant, found := strings.Cut(r.base, "/")
	if !found {
		variant = string(cases.Nulls)
	}
	for _, c := range cases.All() {
		if c.Name == name {
			arr, err := c.Array(memory.NewGoAllocator(), cases.Variant(variant))
			require.NoError(t, err)
			t.Cleanup(arr.Release)
			return arr
		}
	}
	t.Fatalf("no case %q", name)
	return nil
}

// checkRows validates the arrays of the rows in memory of the CPU, and of a GPU: the errors are the same. What is
// accepted can be copied.
func checkRows(t *testing.T, rows []row) {
	t.Helper()
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			here := trees.LooseOf(t, r.array(t))
			r.set(&here.Nodes[0])
			for _, of := range []tree.Tree{here.Tree, here.Upload(t, gpu)} {
				err := Tree(t.Context(), of)
				if r.want != "" {
					assert.ErrorContains(t, err, "cdevice: validate: array."+r.want)
					assert.ErrorIs(t, err, arrow.ErrInvalid)
					continue
				}
				assert.NoError(t, err)
				copied, err := copyplan.ToHost(t.Context(), of, nil, nil)
				if assert.NoError(t, err, "what is accepted can be read") {
					copied[0].Release()
				}
			}
		})
	}
}

// invalidAt makes element i null without a word to the null count.
func invalidAt(i int) trees.Change {
	return func(n *tree.Node) { trees.Values[byte](n, 0, i/8+1)[i/8] &^= 1 << (i % 8) }
}

// viewAt overwrites view i: a length, then a prefix, a buffer index and an offset.
func viewAt(i int, size int32, rest ...int32) trees.Change {
	return func(n *tree.Node) {
		words := trees.Values[int32](n, 1, 4*i+4)[4*i:]
		words[0] = size
		copy(words[4-len(rest):], rest)
	}
}

func TestBadOffsets(t *testing.T) {
	const most32, most64 = math.MaxInt32, int64(math.MaxInt64)
	checkRows(t, []row{
		{name: "first negative, utf8", base: "utf8", set: trees.Put[int32](1, 0, -1), want: "offsets[0] = -1, want at least 0"},
		{name: "first negative, large_binary", base: "large_binary", set: trees.Put[int64](1, 0, -1), want: "offsets[0] = -1, want at least 0"},
		{name: "first negative, list", base: "list", set: trees.Put[int32](1, 0, -1), want: "offsets[0] = -1, want at least 0"},
		{name: "decreasing, utf8", base: "utf8/valid", set: trees.Put[int32](1, 2, 0), want: "offsets[2] = 0, want at least 1, the offset before it"},
		{name: "decreasing, binary", base: "binary/valid", set: trees.Put[int32](1, 3, 1), want: "offsets[3] = 1, want at least 2, the offset before it"},
		{name: "decreasing, large_utf8", base: "large_utf8/valid", set: trees.Put(1, 1, most64), want: "offsets[2] = 4, want at least 9223372036854775807, the offset before it"},
		{name: "decreasing, list", base: "list/valid", set: trees.Put[int32](1, 1, 9), want: "offsets[2] = 4, want at least 9, the offset before it"},
		{name: "decreasing, map", base: "map/valid", set: trees.Put[int32](1, 1, 4), want: "offsets[2] = "},
		{name: "decreasing at a null", base: "utf8", set: trees.Put[int32](1, 2, 0), want: "offsets[2] = 0, want at least 1, the offset before it"},
		{name: "int32 overflow, utf8", base: "utf8/valid", set: trees.Put[int32](1, 3, most32), want: "offsets[4] = "},
		{name: "int32 wrapped around, utf8", base: "utf8/valid", set: trees.Put[int32](1, 3, math.MinInt32), want: "offsets[3] = -2147483648, want at least "},
		{name: "last negative, utf8", base: "utf8/valid", set: trees.Put[int32](1, 6, -1), want: "offsets[6] = -1, want 0 to "},
		{name: "last least, large_utf8", base: "large_utf8/valid", set: trees.Put[int64](1, 6, math.MinInt64), want: "offsets[6] = -9223372036854775808, want 0 to "},
		{name: "last beyond any memory, large_utf8", base: "large_utf8/valid", set: trees.Put(1, 6, most64), want: "offsets[6] = 9223372036854775807, want 0 to "},
		{name: "last negative, list", base: "list/valid", set: trees.Put[int32](1, 5, -1), want: "offsets[5] = -1, want at least "},
		{name: "last beyond the child, list", base: "list/valid", set: trees.Put[int32](1, 5, 99), want: "offsets[5] = 99, want at most 9"},
		{name: "last beyond the child, large_list", base: "large_list/valid", set: trees.Put(1, 5, most64), want: "offsets[5] = 9223372036854775807, want at most 9"},
		{name: "last beyond the child, map", base: "map/valid", set: trees.Put[int32](1, 4, 5), want: "offsets[4] = 5, want at most 4"},
		{name: "child shorter than the last", base: "list/valid", set: trees.In(0, func(n *tree.Node) { n.Length--; n.Nulls = -1 }), want: "offsets[5] = 9, want at most 8"},
		{name: "of a child", base: "list_utf8/valid", set: trees.In(0, trees.Put[int32](1, 2, 0)), want: "children[0].offsets[2] = 0, want at least 1"},
		{name: "of a struct's child", base: "struct/valid", set: trees.In(1, trees.Put[int32](1, 1, -3)), want: "children[1].offsets[1] = -3, want at least 0"},
		{name: "of a dictionary", base: "dictionary_int64/valid", set: trees.In(0, trees.Put[int32](1, 1, 50)), want: "dictionary.offsets[2] = 2, want at least 50"},
		{name: "of run-end encoded values", base: "run_end_encoded_int64", set: trees.In(1, trees.Put[int32](1, 1, 50)), want: "children[1].offsets[2] = 2, want at least 50"},
		{name: "of a union's child", base: "dense_union", set: trees.In(1, trees.Put[int32](1, 1, 50)), want: "children[1].offsets[2] = 7, want at least 50"},
		{name: "of a map's keys", base: "map/valid", set: trees.In(0, trees.In(0, trees.Put[int32](1, 1, 50))), want: "children[0].children[0].offsets[2] = 2, want at least 50"},

		{name: "list view, offset -1", base: "list_view/valid", set: trees.Put[int32](1, 1, -1), want: "offsets[1] = -1, want 0 to "},
		{name: "list view, offset beyond", base: "list_view/valid", set: trees.Put[int32](1, 1, most32), want: "offsets[1] = 2147483647, want 0 to "},
		{name: "list view, size -1", base: "list_view/valid", set: trees.Put[int32](2, 0, -1), want: "sizes[0] = -1, want 0 to "},
		{name: "list view, size beyond", base: "list_view/valid", set: trees.Put[int32](2, 0, 99), want: "sizes[0] = 99, want 0 to "},
		{name: "list view, offset and size overflow", base: "list_view/valid", set: trees.Both(trees.Put[int32](1, 0, 1), trees.Put[int32](2, 0, most32)), want: "sizes[0] = 2147483647, want 0 to "},
		{name: "large list view, offset and size overflow", base: "large_list_view/valid", set: trees.Both(trees.Put[int64](1, 0, 1), trees.Put(2, 0, most64)), want: "sizes[0] = 9223372036854775807, want 0 to "},
		{name: "large list view, size least", base: "large_list_view/valid", set: trees.Put[int64](2, 3, math.MinInt64), want: "sizes[3] = -9223372036854775808, want 0 to "},
		{name: "list view, the other way round", base: "list_view/valid", set: func(n *tree.Node) {
			for _, i := range []int{1, 2} {
				v := trees.Values[int32](n, i, 4)
				v[0], v[3] = v[3], v[0]
			}
		}},
	})
}

func TestBadText(t *testing.T) {
	checkRows(t, []row{
		{name: "utf8", base: "utf8", set: trees.Put[byte](2, 0, 0xff), want: "values[0], want valid UTF-8"},
		{name: "large_utf8", base: "large_utf8/valid", set: trees.Put[byte](2, 2, 0xc0), want: "values[1], want valid UTF-8"},
		{name: "a character cut in two", base: "utf8/valid", set: func(n *tree.Node) { trees.Values[int32](n, 1, 6)[5]-- }, want: "values[4], want valid UTF-8"},
		{name: "a surrogate", base: "utf8/valid", set: func(n *tree.Node) { copy(trees.Values[byte](n, 2, 4)[1:], "\xed\xa0\x80") }, want: "values[1], want valid UTF-8"},
		{name: "inline view", base: "utf8_view", set: trees.Put[byte](1, 4, 0xff), want: "values[0], want valid UTF-8"},
		{name: "long view", base: "utf8_view", set: trees.Put[byte](2, 20, 0xff), want: "values[3], want valid UTF-8"},
		{name: "dictionary", base: "dictionary_int8", set: trees.In(0, trees.Put[byte](2, 0, 0xff)), want: "dictionary.values[0], want valid UTF-8"},
		{name: "dictionary below a list", base: "list_dictionary", set: trees.In(0, trees.In(0, trees.Put[byte](2, 0, 0xff))), want: "children[0].dictionary.values[0], want valid UTF-8"},
		{name: "child", base: "list_utf8", set: trees.In(0, trees.Put[byte](2, 1, 0xff)), want: "children[0].values[1], want valid UTF-8"},
		{name: "map keys", base: "map", set: trees.In(0, trees.In(0, trees.Put[byte](2, 0, 0xff))), want: "children[0].children[0].values[0], want valid UTF-8"},
		{name: "run-end encoded", base: "run_end_encoded_int16", set: trees.In(1, trees.Put[byte](2, 2, 0xff)), want: "children[1].values[2], want valid UTF-8"},
		{name: "in a null", base: "utf8/valid", set: func(n *tree.Node) {
			trees.Bitmap(0, n.Length)(n)
			trees.Put[byte](2, 0, 0xff)(n)
		}},
		{name: "binary", base: "binary", set: trees.Put[byte](2, 0, 0xff)},
		{name: "binary view", base: "binary_view", set: trees.Put[byte](1, 4, 0xff)},
	})
}

func TestBadViews(t *testing.T) {
	checkRows(t, []row{
		{name: "length -1", base: "utf8_view", set: viewAt(0, -1), want: "views[0].length = -1, want at least 0"},
		{name: "length least", base: "binary_view", set: viewAt(0, math.MinInt32), want: "views[0].length = -2147483648, want at least 0"},
		{name: "length beyond the buffer", base: "utf8_view", set: viewAt(3, math.MaxInt32), want: "views[3].offset = 0, want 0 to "},
		{name: "buffer -1", base: "utf8_view", set: viewAt(3, 25, -1, 0), want: "views[3].buffer_index = -1, want 0 to 0"},
		{name: "buffer beyond", base: "utf8_view", set: viewAt(3, 25, 1, 0), want: "views[3].buffer_index = 1, want 0 to 0"},
		{name: "buffer most", base: "binary_view", set: viewAt(2, 16, math.MaxInt32, 0), want: "views[2].buffer_index = 2147483647, want 0 to 0"},
		{name: "no buffers at all", base: "utf8_view", set: func(n *tree.Node) {
			n.Buffers = []uintptr{n.Buffers[0], n.Buffers[1], n.Buffers[3]}
		}, want: "views[3].buffer_index = 0, want "},
		{name: "offset -1", base: "utf8_view", set: viewAt(3, 25, 0, -1), want: "views[3].offset = -1, want 0 to "},
		{name: "offset beyond", base: "utf8_view", set: viewAt(3, 40, 0, 31), want: "views[3].offset = 31, want 0 to 30"},
		{name: "offset most", base: "binary_view", set: viewAt(2, 16, 0, math.MaxInt32), want: "views[2].offset = 2147483647, want 0 to 0"},
		{name: "prefix of something else", base: "utf8_view", set: trees.Put[byte](1, 3*16+4, 'X'), want: "views[3].prefix = "},
		{name: "range beyond a shrunken buffer", base: "binary_view", set: trees.Put[int64](3, 0, 15), want: "views[2].offset = 0, want 0 to -1"},
		{name: "anything in a null", base: "utf8_view", set: viewAt(1, math.MaxInt32, -7, -7)},
		{name: "a range shared", base: "binary_view", set: func(n *tree.Node) {
			views := trees.Values[arrow.ViewHeader](n, 1, 3)
			views[0] = views[2]
		}},
	})
}

func TestBadPadding(t *testing.T) {
	checkRows(t, []row{
		{name: "behind a short value", base: "utf8_view", set: trees.Put[byte](1, 15, 1), want: "views[0].bytes[15] = 1, want 0 behind a value of "},
		{name: "at once behind it", base: "binary_view", set: func(n *tree.Node) {
			v := trees.Values[byte](n, 1, 16)
			v[4+v[0]] = 0xff
		}, want: "views[0].bytes["},
		{name: "behind an empty value", base: "utf8_view", set: trees.Both(viewAt(0, 0), trees.Put[byte](1, 4, 'x')), want: "views[0].bytes[4] = 120, want 0 behind a value of 0 bytes"},
		{name: "below a list", typ: arrow.ListOf(arrow.BinaryTypes.StringView), text: `[["a"],["b"]]`, set: trees.In(0, trees.Put[byte](1, 16+12, 7)), want: "children[0].views[1].bytes[12] = 7"},
		{name: "behind a value of twelve bytes", typ: arrow.BinaryTypes.StringView, text: `["abcdefghijkl"]`, set: trees.Put[byte](1, 15, 'X')},
		{name: "of a null", base: "utf8_view", set: trees.Put[byte](1, 16+15, 1)},
		{name: "of a long value, which has none", base: "utf8_view", set: func(*tree.Node) {}},
		{name: "before the offset", base: "utf8_view/sliced", set: trees.Put[byte](1, 15, 1)},
	})
}

func TestBadMaps(t *testing.T) {
	dt := arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64)
	const text = `[[{"key":"a","value":1}],[{"key":"b","value":null}]]`
	entries := func(c trees.Change) trees.Change { return trees.In(0, c) }
	keys := func(c trees.Change) trees.Change { return trees.In(0, trees.In(0, c)) }
	none, second, all := trees.Bitmap(0, -1), trees.Bitmap(1, 1), trees.Bitmap(3, -1)
	const nullKey = "children[0].children[0].null_count = 1, want 0 for the keys of a map"
	checkRows(t, []row{
		{name: "null keys", typ: dt, text: text, set: keys(trees.Bitmap(0, 2)), want: "children[0].children[0].null_count = 2, want 0 for the keys of a map"},
		{name: "null keys that are not counted", typ: dt, text: text, set: keys(none), want: "children[0].children[0].null_count = 2, want 0 for the keys of a map"},
		{name: "one null key", typ: dt, text: text, set: keys(second), want: nullKey},
		{name: "null entries", typ: dt, text: text, set: entries(none), want: "children[0].null_count = 2, want 0 for the entries of a map"},
		{name: "one null entry", typ: dt, text: text, set: entries(second), want: "children[0].null_count = 1, want 0 for the entries of a map"},
		{name: "a null key in no element", typ: dt, text: text, set: func(n *tree.Node) {
			keys(second)(n)
			copy(trees.Values[int32](n, 1, 3), []int32{0, 1, 1})
		}, want: nullKey},
		{name: "a null key in a null element", typ: dt, text: text, set: trees.Both(keys(second), second), want: nullKey},
		{name: "bits that are all set", typ: dt, text: text, set: keys(all)},
		{name: "null values", typ: dt, text: text, set: func(*tree.Node) {}},
		{name: "below a list", typ: arrow.ListOf(dt), text: `[` + text + `]`, set: trees.In(0, keys(trees.Bitmap(0, 2))), want: "children[0].children[0].children[0].null_count = 2"},
		{name: "of an empty map", typ: dt, text: `[]`, set: func(*tree.Node) {}},
	})
}

func TestBadIndices(t *testing.T) {
	checkRows(t, []row{
		{name: "int8 -1", base: "dictionary_int8", set: trees.Put[int8](1, 0, -1), want: "indices[0] = -1, want an index into 3 values"},
		{name: "int8 as long as the dictionary", base: "dictionary_int8", set: trees.Put[int8](1, 3, 3), want: "indices[3] = 3, want an index into 3 values"},
		{name: "int16", base: "dictionary_int16", set: trees.Put[int16](1, 2, math.MinInt16), want: "indices[2] = -32768, want an index into 3 values"},
		{name: "int32", base: "dictionary_int32", set: trees.Put[int32](1, 4, math.MaxInt32), want: "indices[4] = 2147483647, want an index into 3 values"},
		{name: "int64", base: "dictionary_int64", set: trees.Put[int64](1, 0, math.MinInt64), want: "indices[0] = -9223372036854775808, want an index into 3 values"},
		{name: "uint8", base: "dictionary_uint8", set: trees.Put[uint8](1, 0, 3), want: "indices[0] = 3, want an index into 3 values"},
		{name: "uint16", base: "dictionary_uint16", set: trees.Put[uint16](1, 0, math.MaxUint16), want: "indices[0] = 65535, want an index into 3 values"},
		{name: "uint32", base: "dictionary_uint32", set: trees.Put[uint32](1, 0, math.MaxUint32), want: "indices[0] = 4294967295, want an index into 3 values"},
		{name: "uint64", base: "dictionary_uint64", set: trees.Put[uint64](1, 0, math.MaxUint64), want: "indices[0] = 18446744073709551615, want an index into 3 values"},
		{name: "sliced", base: "dictionary_int8/sliced", set: trees.Put[int8](1, 2, 77), want: "indices[0] = 77, want an index into 3 values"},
		{name: "negative, into many values", typ: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int8}, text: `[1,2]`,
			set: trees.Both(trees.In(0, trees.Length(300)), trees.Put[int8](1, 0, -1)), want: "indices[0] = -1, want an index into 128 values"},
		{name: "into a shorter dictionary", base: "dictionary_int8", set: trees.In(0, func(n *tree.Node) { n.Length, n.Nulls = 2, -1 }), want: "indices[4] = 2, want an index into 2 values"},
		{name: "into an empty dictionary", base: "dictionary_uint8", set: trees.In(0, func(n *tree.Node) { n.Length, n.Nulls = 0, 0 }), want: "indices[0] = 0, want an index into 0 values"},
		{name: "below a struct", base: "struct_dictionary", set: trees.In(0, trees.Put[int32](1, 0, 9)), want: "children[0].indices[0] = 9, want an index into 1 values"},
		{name: "below a list", base: "list_dictionary", set: trees.In(0, trees.Put[int32](1, 1, -9)), want: "children[0].indices[1] = -9, want an index into 3 values"},
		{name: "at a null", base: "dictionary_int32", set: trees.Put[int32](1, 1, -77)},
		{name: "before the offset", base: "dictionary_int32/sliced", set: trees.Put[int32](1, 0, 77)},
	})
}

func TestBadUnions(t *testing.T) {
	checkRows(t, []row{
		{name: "sparse, type id between", base: "sparse_union", set: trees.Put[int8](0, 2, 6), want: "type_ids[2] = 6, want a type id of sparse_union<"},
		{name: "sparse, type id -1", base: "sparse_union", set: trees.Put[int8](0, 0, -1), want: "type_ids[0] = -1, want a type id of "},
		{name: "sparse, type id 127", base: "sparse_union", set: trees.Put[int8](0, 5, 127), want: "type_ids[5] = 127, want a type id of "},
		{name: "sparse, type id -128", base: "sparse_union", set: trees.Put[int8](0, 5, -128), want: "type_ids[5] = -128, want a type id of "},
		{name: "sparse, an index for an id", base: "sparse_union", set: trees.Put[int8](0, 0, 0), want: "type_ids[0] = 0, want a type id of "},
		{name: "sparse, sliced", base: "sparse_union/sliced", set: trees.Put[int8](0, 2, 0), want: "type_ids[0] = 0, want a type id of "},
		{name: "dense, type id 8", base: "dense_union", set: trees.Put[int8](0, 1, 8), want: "type_ids[1] = 8, want a type id of dense_union<"},
		{name: "dense, the other child", base: "dense_union", set: trees.Put[int8](0, 5, 7), want: "offsets[5] = 3, want 1 to 1"},
		{name: "dense, offset -1", base: "dense_union", set: trees.Put[int32](1, 0, -1), want: "offsets[0] = -1, want 0 to 3"},
		{name: "dense, offset beyond", base: "dense_union", set: trees.Put[int32](1, 5, 4), want: "offsets[5] = 4, want 2 to 3"},
		{name: "dense, offset most", base: "dense_union", set: trees.Put[int32](1, 1, math.MaxInt32), want: "offsets[1] = 2147483647, want 0 to 1"},
		{name: "dense, decreasing", base: "dense_union", set: trees.Put[int32](1, 3, 0), want: "offsets[3] = 0, want 1 to 3"},
		{name: "dense, child shorter", base: "dense_union", set: trees.In(0, func(n *tree.Node) { n.Length, n.Nulls = 3, -1 }), want: "offsets[5] = 3, want 2 to 2"},
		{name: "dense, child empty", base: "dense_union", set: trees.In(1, func(n *tree.Node) { n.Length, n.Nulls = 0, 0 }), want: "offsets[1] = 0, want 0 to -1"},
		{name: "dense, offset repeated", base: "dense_union", set: trees.Put[int32](1, 2, 0)},
	})
}

func TestBadRunEnds(t *testing.T) {
	checkRows(t, []row{
		{name: "first 0", base: "run_end_encoded_int32", set: trees.In(0, trees.Put[int32](1, 0, 0)), want: "run_ends[0] = 0, want more than 0"},
		{name: "first negative", base: "run_end_encoded_int16", set: trees.In(0, trees.Put[int16](1, 0, -3)), want: "run_ends[0] = -3, want more than 0"},
		{name: "equal", base: "run_end_encoded_int64", set: trees.In(0, trees.Put[int64](1, 1, 3)), want: "run_ends[1] = 3, want more than 3"},
		{name: "decreasing", base: "run_end_encoded_int32", set: trees.In(0, trees.Put[int32](1, 1, 2)), want: "run_ends[1] = 2, want more than 3"},
		{name: "wrapped around", base: "run_end_encoded_int16", set: trees.In(0, trees.Put[int16](1, 2, math.MinInt16)), want: "run_ends[2] = -32768, want more than 5"},
		{name: "last short of the length", base: "run_end_encoded_int32", set: trees.Length(7), want: "run_ends[2] = 6, want at least 7"},
		{name: "last short of offset and length", base: "run_end_encoded_int64", set: func(n *tree.Node) { n.Offset = 1 }, want: "run_ends[2] = 6, want at least 7"},
		{name: "last beyond the length", base: "run_end_encoded_int64", set: trees.In(0, trees.Put[int64](1, 2, math.MaxInt64))},
		{name: "more runs than needed", base: "run_end_encoded_int16/sliced", set: trees.Length(1)},
	})
}

func TestBadNullCounts(t *testing.T) {
	checkRows(t, []row{
		{name: "0 of 2", base: "int64", set: trees.Nulls(0), want: "null_count = 0, want 2, the nulls in the bitmap"},
		{name: "1 of 2", base: "bool", set: trees.Nulls(1), want: "null_count = 1, want 2, the nulls in the bitmap"},
		{name: "all of 2", base: "struct", set: trees.Nulls(6), want: "null_count = 6, want 2, the nulls in the bitmap"},
		{name: "bitmap cleared", base: "utf8", set: invalidAt(0), want: "null_count = 2, want 3, the nulls in the bitmap"},
		{name: "sliced", base: "int64/sliced", set: trees.Nulls(2), want: "null_count = 2, want 0, the nulls in the bitmap"},
		{name: "in a child", base: "list_utf8", set: trees.In(0, trees.Nulls(2)), want: "children[0].null_count = 2, want 1, the nulls in the bitmap"},
		{name: "in a dictionary", base: "list_dictionary", set: trees.In(0, trees.Nulls(0)), want: "children[0].null_count = 0, want 1, the nulls in the bitmap"},
		{name: "-1 of 2", base: "fixed_size_list", set: trees.Nulls(-1)},
	})
}
