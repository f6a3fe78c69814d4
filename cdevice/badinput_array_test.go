package cdevice_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

func TestBadBufferCounts(t *testing.T) {
	var rows []badRow
	for _, r := range []struct {
		base string
		has  int64
		want string
	}{
		{"null", 0, "0 for null"},
		{"bool", 2, "2 for bool"},
		{"int64", 2, "2 for int64"},
		{"fixed_size_binary", 2, "2 for fixed_size_binary[3]"},
		{"utf8", 3, "3 for utf8"},
		{"large_utf8", 3, "3 for large_utf8"},
		{"list", 2, "2 for list<item: int32, nullable>"},
		{"large_list", 2, "2 for large_list<item: int32, nullable>"},
		{"list_view", 3, "3 for list_view<item: int32, nullable>"},
		{"fixed_size_list", 1, "1 for fixed_size_list<item: int16, nullable>[2]"},
		{"struct", 1, "1 for struct<x: int32 nullable, name: utf8 nullable>"},
		{"map", 2, "2 for map<utf8, int64, items_nullable>"},
		{"sparse_union", 1, "1 for sparse_union<"}, // 2 of a producer before Arrow 1.0, with a validity bitmap
		{"dense_union", 2, "2 for dense_union<"},
		{"dictionary_int8", 2, "2 for dictionary<values=utf8, indices=int8, ordered=false>"},
		{"run_end_encoded_int32", 0, "0 for run_end_encoded<run_ends: int32, values: utf8>"},
		{"extension_uuid", 2, "2 for fixed_size_binary[16]"},
	} {
		for _, v := range slices.Compact([]int64{0, max(r.has-1, 0), r.has + 1, 1 << 62, math.MinInt64}) {
			if v == r.has || r.base == "null" && v == 1 {
				continue
			}
			rows = append(rows, badRow{
				name: fmt.Sprintf("%s/%d", r.base, v), base: r.base, set: nBuffers(v),
				want: fmt.Sprintf("@.n_buffers = %d, want %s", v, r.want), is: arrow.ErrInvalid,
			})
		}
	}
	for _, v := range []int64{2, 0, -1, 1 << 62, math.MinInt64} {
		rows = append(rows, badRow{
			name: fmt.Sprintf("binary_view/%d", v), base: "binary_view", set: nBuffers(v),
			want: fmt.Sprintf("@.n_buffers = %d, want at least 3 for binary_view", v), is: arrow.ErrInvalid,
		})
	}
	testRows(t, append(rows, []badRow{
		{name: "null with a bitmap, as polars has it", base: "null", set: nBuffers(1)},
		{name: "child", base: "list", set: inChild(0, nBuffers(1)), want: "@.children[0].n_buffers = 1, want 2 for int32", is: arrow.ErrInvalid},
		{name: "dictionary values", base: "dictionary_int8", set: inDict(nBuffers(2)), want: "@.dictionary.n_buffers = 2, want 3 for utf8", is: arrow.ErrInvalid},
		{name: "dictionary below a list", base: "list_dictionary", set: inChild(0, inDict(nBuffers(4))), want: "@.children[0].dictionary.n_buffers = 4, want 3 for utf8", is: arrow.ErrInvalid},
		{name: "below a struct and a list", base: "struct_nested", set: inChild(1, inChild(0, inChild(1, nBuffers(-1)))), want: "@.children[1].children[0].children[1].n_buffers = -1, want 3 for utf8", is: arrow.ErrInvalid},
		{name: "map keys", base: "map", set: inChild(0, inChild(0, nBuffers(2))), want: "@.children[0].children[0].n_buffers = 2, want 3 for utf8", is: arrow.ErrInvalid},
		{name: "run ends", base: "run_end_encoded_int16", set: inChild(0, nBuffers(1)), want: "@.children[0].n_buffers = 1, want 2 for int16", is: arrow.ErrInvalid},
	}...))
}

func TestBadChildCounts(t *testing.T) {
	var rows []badRow
	for _, r := range []struct {
		base string
		has  int64
		want string
	}{
		{"null", 0, "null"},
		{"int64", 0, "int64"},
		{"utf8", 0, "utf8"},
		{"binary_view", 0, "binary_view"},
		{"list", 1, "list<"},
		{"list_view", 1, "list_view<"},
		{"fixed_size_list", 1, "fixed_size_list<"},
		{"struct", 2, "struct<"},
		{"struct_empty", 0, "struct<>"},
		{"map", 1, "map<"},
		{"sparse_union", 2, "sparse_union<"},
		{"dense_union", 2, "dense_union<"},
		{"dictionary_int8", 0, "dictionary<"},
		{"run_end_encoded_int32", 2, "run_end_encoded<"},
		{"extension_bool8", 0, "int8"},
	} {
		for _, v := range []int64{r.has - 1, r.has + 1, 1 << 62, math.MinInt64} {
			rows = append(rows, badRow{
				name: fmt.Sprintf("%s/%d", r.base, v), base: r.base, set: nChildren(v),
				want: fmt.Sprintf("@.n_children = %d, want %d for %s", v, r.has, r.want), is: arrow.ErrInvalid,
			})
		}
	}
	testRows(t, append(rows, []badRow{
		{name: "map child without values", base: "map", set: inChild(0, nChildren(1)), want: "@.children[0].n_children = 1, want 2 for struct<", is: arrow.ErrInvalid},
		{name: "map child with three fields", base: "map", set: inChild(0, nChildren(3)), want: "@.children[0].n_children = 3, want 2 for struct<", is: arrow.ErrInvalid},
		{name: "dictionary values", base: "dictionary_int8", set: inDict(nChildren(1)), want: "@.dictionary.n_children = 1, want 0 for utf8", is: arrow.ErrInvalid},
	}...))
}

func TestBadPointers(t *testing.T) {
	buffers := func(v uintptr) corruption {
		return func(_ *foreignArray, n *foreignNode) { n.Buffers = v }
	}
	pointers := func(v uintptr) corruption {
		return func(_ *foreignArray, n *foreignNode) { n.Children = v }
	}
	oneOff := func(_ *foreignArray, n *foreignNode) { n.Buffers++ }
	childrenOneOff := func(_ *foreignArray, n *foreignNode) { n.Children++ }
	entry := func(i int, v uintptr) corruption {
		return func(_ *foreignArray, n *foreignNode) { n.entries[i] = v }
	}
	released := func(_ *foreignArray, n *foreignNode) { n.Release = 0 }
	testRows(t, []badRow{
		{name: "buffers NULL", base: "int64", set: buffers(0), want: "@.buffers = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "buffers NULL, bool", base: "bool", set: buffers(0), want: "@.buffers = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "buffers NULL, utf8", base: "utf8", set: buffers(0), want: "@.buffers = 0x0, want an array of 3 pointers", is: arrow.ErrInvalid},
		{name: "buffers NULL, view", base: "binary_view", set: buffers(0), want: "@.buffers = 0x0, want an array of ", is: arrow.ErrInvalid},
		{name: "buffers NULL, struct", base: "struct", set: buffers(0), want: "@.buffers = 0x0, want an array of 1 pointer", is: arrow.ErrInvalid},
		{name: "buffers NULL, dense union", base: "dense_union", set: buffers(0), want: "@.buffers = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "buffers NULL, length 0", base: "int64/empty", set: buffers(0), want: "@.buffers = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "buffers NULL, null", base: "null", set: buffers(0)},
		{name: "buffers NULL, run ends", base: "run_end_encoded_int64", set: buffers(0), full: true},
		{name: "buffers anything, null", base: "null", set: buffers(0xdead), full: true},
		{name: "buffers misaligned", base: "int64", set: oneOff, want: "@.buffers = 0x", is: arrow.ErrInvalid},
		{name: "buffers misaligned in a dictionary", base: "dictionary_uint64", set: inDict(oneOff), want: "@.dictionary.buffers = 0x", is: arrow.ErrInvalid},

		{name: "children NULL, list", base: "list", set: pointers(0), want: "@.children = 0x0, want an array of 1 pointer", is: arrow.ErrInvalid},
		{name: "children NULL, struct", base: "struct", set: pointers(0), want: "@.children = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "children NULL, map entries", base: "map", set: inChild(0, pointers(0)), want: "@.children[0].children = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "children NULL, length 0", base: "sparse_union/empty", set: pointers(0), want: "@.children = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "children NULL, none wanted", base: "struct_empty", set: pointers(0), full: true},
		{name: "children anything, none wanted", base: "int64", set: pointers(0xdead), full: true},
		{name: "children misaligned", base: "run_end_encoded_int16", set: childrenOneOff, want: "@.children = 0x", is: arrow.ErrInvalid},
		{name: "child NULL", base: "struct", set: entry(1, 0), want: "@.children[1].pointer = 0x0, want the address of a struct", is: arrow.ErrInvalid},
		{name: "child NULL, list", base: "large_list", set: entry(0, 0), want: "@.children[0].pointer = 0x0, want the address of a struct", is: arrow.ErrInvalid},
		{name: "child NULL, union", base: "dense_union", set: entry(0, 0), want: "@.children[0].pointer = 0x0, want the address of a struct", is: arrow.ErrInvalid},
		{name: "child misaligned", base: "fixed_size_list", set: func(_ *foreignArray, n *foreignNode) { n.entries[0]++ }, want: "@.children[0].pointer = 0x", is: arrow.ErrInvalid},
		{name: "child released", base: "struct", set: inChild(1, released), want: "@.children[1].release = NULL", is: cdevice.ErrReleased},
		{name: "grandchild released", base: "list_struct", set: inChild(0, inChild(0, released)), want: "@.children[0].children[0].release = NULL", is: cdevice.ErrReleased},
		{name: "dictionary released", base: "dictionary_int8", set: inDict(released), want: "@.dictionary.release = NULL", is: cdevice.ErrReleased},
		{name: "child its own parent", base: "list_utf8", set: func(_ *foreignArray, n *foreignNode) { n.entries[0] = addressOf(n.ArrowArray) }, want: "@.children[0].n_buffers = 2, want 3 for utf8", is: arrow.ErrInvalid},
		{name: "child its own parent, same buffers", base: "list", set: func(_ *foreignArray, n *foreignNode) { n.entries[0] = addressOf(n.ArrowArray) }, want: "@.children[0].n_children = 1, want 0 for int32", is: arrow.ErrInvalid},
		{name: "grandchild its own grandparent", base: "list_struct", set: inChildOf(0, func(parent, n *foreignNode) { n.entries[1] = addressOf(parent.ArrowArray) }), want: "@.children[0].children[1].n_buffers = 2, want 3 for utf8", is: arrow.ErrInvalid},
		{name: "dictionary its own parent", base: "dictionary_int8", set: func(_ *foreignArray, n *foreignNode) { n.Dictionary = addressOf(n.ArrowArray) }, want: "@.dictionary.n_buffers = 2, want 3 for utf8", is: arrow.ErrInvalid},
		{name: "one child twice", base: "struct_nested", full: true, set: func(_ *foreignArray, n *foreignNode) {
			n.children[1].children[0].entries[0] = n.children[0].entries[0]
		}},

		{name: "dictionary missing", base: "dictionary_int32", set: func(_ *foreignArray, n *foreignNode) { n.Dictionary = 0 }, want: "@.dictionary = NULL, want a struct for dictionary<", is: arrow.ErrInvalid},
		{name: "dictionary missing below a struct", base: "struct_dictionary", set: inChild(0, func(_ *foreignArray, n *foreignNode) { n.Dictionary = 0 }), want: "@.children[0].dictionary = NULL, want a struct for dictionary<", is: arrow.ErrInvalid},
		{name: "dictionary misaligned", base: "dictionary_int32", set: func(_ *foreignArray, n *foreignNode) { n.Dictionary++ }, want: "@.dictionary.pointer = 0x", is: arrow.ErrInvalid},
		{name: "dictionary unexpected", base: "int64", set: func(_ *foreignArray, n *foreignNode) { n.Dictionary = addressOf(n.ArrowArray) }, want: "@.dictionary = 0x", is: arrow.ErrInvalid},
		{name: "dictionary unexpected, list", base: "list", set: func(_ *foreignArray, n *foreignNode) { n.Dictionary = n.entries[0] }, want: "@.dictionary = 0x", is: arrow.ErrInvalid},
		{name: "dictionary with a dictionary", base: "dictionary_int8", set: inDict(func(_ *foreignArray, n *foreignNode) { n.Dictionary = addressOf(n.ArrowArray) }), want: "@.dictionary.dictionary = 0x", is: arrow.ErrInvalid},
	})
}

func TestBadBuffers(t *testing.T) {
	sizesOf := func(n *foreignNode) []int64 { return valuesAt[int64](n, int(n.NBuffers)-1) }
	size := func(v int64) corruption {
		return func(_ *foreignArray, n *foreignNode) { sizesOf(n)[0] = v }
	}
	noText := func(f *foreignArray, n *foreignNode) {
		clear(n.buffers[1])
		n.setNull(2)
	}
	testRows(t, []badRow{
		{name: "data NULL, int64", base: "int64", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 8", is: arrow.ErrInvalid},
		{name: "data NULL, bool", base: "bool", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 11", is: arrow.ErrInvalid},
		{name: "data NULL, fixed_size_binary", base: "fixed_size_binary", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 6", is: arrow.ErrInvalid},
		{name: "data NULL, extension", base: "extension_uuid", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 5", is: arrow.ErrInvalid},
		{name: "data NULL, dictionary indices", base: "dictionary_int8", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 6", is: arrow.ErrInvalid},
		{name: "data NULL, run ends", base: "run_end_encoded_int32", set: inChild(0, nullBuffer(1)), want: "@.children[0].buffers[1] = NULL, want data for length 3", is: arrow.ErrInvalid},
		{name: "offsets NULL, utf8", base: "utf8", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 7", is: arrow.ErrInvalid},
		{name: "offsets NULL, large_utf8", base: "large_utf8", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 7", is: arrow.ErrInvalid},
		{name: "offsets NULL, list", base: "list", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length ", is: arrow.ErrInvalid},
		{name: "offsets NULL, map", base: "map", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 5", is: arrow.ErrInvalid},
		{name: "offsets NULL, list_view", base: "list_view", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length ", is: arrow.ErrInvalid},
		{name: "sizes NULL, list_view", base: "list_view", set: nullBuffer(2), want: "@.buffers[2] = NULL, want data for length ", is: arrow.ErrInvalid},
		{name: "type ids NULL, sparse", base: "sparse_union", set: nullBuffer(0), want: "@.buffers[0] = NULL, want data for length 6", is: arrow.ErrInvalid},
		{name: "type ids NULL, dense", base: "dense_union", set: nullBuffer(0), want: "@.buffers[0] = NULL, want data for length 6", is: arrow.ErrInvalid},
		{name: "offsets NULL, dense", base: "dense_union", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 6", is: arrow.ErrInvalid},
		{name: "views NULL", base: "utf8_view", set: nullBuffer(1), want: "@.buffers[1] = NULL, want data for length 7", is: arrow.ErrInvalid},

		{name: "offsets NULL, length 0, utf8", base: "utf8/empty", set: both(nullBuffer(1), nullBuffer(2)), full: true},
		{name: "offsets NULL, length 0, large_utf8", base: "large_utf8/empty", set: both(nullBuffer(1), nullBuffer(2)), full: true},
		{name: "offsets NULL, length 0, list", base: "list/empty", set: nullBuffer(1), full: true},
		{name: "offsets NULL, length 0, large_list", base: "large_list/empty", set: nullBuffer(1), full: true},
		{name: "offsets NULL, length 0, map", base: "map/empty", set: nullBuffer(1), full: true},
		{name: "offsets NULL, length 0, list_view", base: "list_view/empty", set: both(nullBuffer(1), nullBuffer(2)), full: true},
		{name: "offsets NULL, length 0, dense", base: "dense_union/empty", set: both(nullBuffer(0), nullBuffer(1)), full: true},
		{name: "views NULL, length 0", base: "binary_view/empty", set: nullBuffer(1), full: true},
		{name: "data NULL, length 0", base: "int64/empty_part", set: both(nullBuffer(0), both(nullBuffer(1), nulls(0))), full: true},
		{name: "text NULL, all empty", base: "utf8/valid", set: noText, full: true},
		{name: "text NULL, all empty, large", base: "large_utf8/valid", set: noText, full: true},
		{name: "text NULL", base: "utf8", set: nullBuffer(2), reads: arrow.ErrInvalid},
		{name: "text NULL, full", base: "utf8", set: nullBuffer(2), full: true, want: "buffers[2] = NULL", is: arrow.ErrInvalid},
		{name: "text NULL in a dictionary, full", base: "dictionary_int8", set: inDict(nullBuffer(2)), full: true, want: "dictionary.buffers[2] = NULL", is: arrow.ErrInvalid},

		{name: "view sizes NULL", base: "utf8_view", set: func(_ *foreignArray, n *foreignNode) { n.setNull(int(n.NBuffers) - 1) }, want: "@.buffers[3] = 0x0, want the sizes of 1 buffers", is: arrow.ErrInvalid},
		{name: "view sizes misaligned", base: "utf8_view", set: func(_ *foreignArray, n *foreignNode) { n.pointers[3]++ }, want: "@.buffers[3] = 0x", is: arrow.ErrInvalid},
		{name: "view sizes of one buffer too many", base: "utf8_view", set: nBuffers(5), want: "@.buffers[4] = 0x0, want the sizes of 2 buffers", is: arrow.ErrInvalid},
		{name: "view size -1", base: "binary_view", set: size(-1), want: "@.buffers[3][0] = -1, want 0 to ", is: arrow.ErrInvalid},
		{name: "view size oversize", base: "binary_view", set: size(math.MaxInt64), want: "@.buffers[3][0] = 9223372036854775807, want 0 to ", is: arrow.ErrInvalid},
		{name: "view data NULL", base: "utf8_view", set: nullBuffer(2), want: "@.buffers[2] = NULL, want 70 bytes", is: arrow.ErrInvalid},
		{name: "view data NULL, size 0", base: "utf8_view/empty", set: func(_ *foreignArray, n *foreignNode) {
			n.pointers[3], n.NBuffers = n.pointers[2], 4
			n.pointers[2] = 0
		}, full: true},
		{name: "view sizes NULL without data buffers", base: "utf8_view/empty", set: nullBuffer(2), full: true},
	})
}

// The struct array of a record batch must have no nulls, and an offset and a length that fit its columns.
func TestBadBatchRoots(t *testing.T) {
	withBitmap := func(f *foreignArray, n *foreignNode) { n.pointers[0] = sliceAddress(allocC[byte](f.arena, slack)) }
	for _, row := range []badRow{
		{name: "length -1", set: length(-1), want: "@.length = -1, want at least 0", is: arrow.ErrInvalid},
		{name: "length more than the columns", set: length(9), want: "@.children[0].length = 8, want at least 9", is: arrow.ErrInvalid},
		{name: "length less than the columns", set: length(3), full: true},
		{name: "length 0", set: length(0), full: true},
		{name: "offset", set: both(offset(3), length(5)), full: true},
		{name: "offset at the end", set: both(offset(8), length(0)), full: true},
		{name: "offset and length more than the columns", set: offset(1), want: "@.children[0].length = 8, want at least 9", is: arrow.ErrInvalid},
		{name: "offset beyond the columns", set: both(offset(9), length(0)), want: "@.children[0].length = 8, want at least 9", is: arrow.ErrInvalid},
		{name: "offset beyond one column", set: both(both(offset(3), length(5)), inChild(1, both(length(7), nulls(-1)))), want: "@.children[1].length = 7, want at least 8", is: arrow.ErrInvalid},
		{name: "offset -1", set: offset(-1), want: "@.offset = -1, want 0 to 9223372036854775799 with length 8", is: arrow.ErrInvalid},
		{name: "offset that overflows", set: offset(math.MaxInt64 - 7), want: "@.offset = 9223372036854775800, want 0 to 9223372036854775799 with length 8", is: arrow.ErrInvalid},
		{name: "offset -1 and length 0", set: both(offset(-1), length(0)), want: "@.offset = -1, want 0 to 9223372036854775807 with length 0", is: arrow.ErrInvalid},
		{name: "null_count 1", set: nulls(1), want: "@.null_count = 1, want 0 for a record batch: cdevice.ImportArray takes nulls", is: arrow.ErrInvalid},
		{name: "null_count 1 with a bitmap", set: both(withBitmap, nulls(1)), want: "@.null_count = 1, want 0 for a record batch: cdevice.ImportArray takes nulls", is: arrow.ErrInvalid},
		{name: "null_count -1 with a bitmap", set: both(withBitmap, nulls(-1)), want: "@.null_count = -1, want 0 for a record batch: package cdata counts, and cdevice.ImportArray takes nulls", is: arrow.ErrInvalid},
		{name: "null_count -2", set: nulls(-2), want: "@.null_count = -2, want 0 for a record batch", is: arrow.ErrInvalid},
		{name: "null_count -1", set: nulls(-1), full: true},
		{name: "bitmap of no nulls", set: withBitmap, full: true},
		{name: "n_buffers 0", set: nBuffers(0), want: "@.n_buffers = 0, want 1 for a record batch", is: arrow.ErrInvalid},
		{name: "n_buffers 2", set: nBuffers(2), want: "@.n_buffers = 2, want 1 for a record batch", is: arrow.ErrInvalid},
		{name: "n_buffers 2^62", set: nBuffers(1 << 62), want: "@.n_buffers = 4611686018427387904, want 1 for a record batch", is: arrow.ErrInvalid},
		{name: "buffers NULL", set: func(_ *foreignArray, n *foreignNode) { n.Buffers = 0 }, want: "@.buffers = 0x0, want an array of 1 pointer", is: arrow.ErrInvalid},
		{name: "buffers misaligned", set: func(_ *foreignArray, n *foreignNode) { n.Buffers += 4 }, want: "@.buffers = 0x", is: arrow.ErrInvalid},
		{name: "n_children 1", set: nChildren(1), want: "@.n_children = 1, want 2 for the fields of the schema", is: arrow.ErrInvalid},
		{name: "n_children 3", set: nChildren(3), want: "@.n_children = 3, want 2 for the fields of the schema", is: arrow.ErrInvalid},
		{name: "n_children -1", set: nChildren(-1), want: "@.n_children = -1, want 2 for the fields of the schema", is: arrow.ErrInvalid},
		{name: "n_children 2^62", set: nChildren(1 << 62), want: "@.n_children = 4611686018427387904, want 2 for the fields of the schema", is: arrow.ErrInvalid},
		{name: "children NULL", set: func(_ *foreignArray, n *foreignNode) { n.Children = 0 }, want: "@.children = 0x0, want an array of 2 pointers", is: arrow.ErrInvalid},
		{name: "children misaligned", set: func(_ *foreignArray, n *foreignNode) { n.Children++ }, want: "@.children = 0x", is: arrow.ErrInvalid},
		{name: "column NULL", set: func(_ *foreignArray, n *foreignNode) { n.entries[1] = 0 }, want: "@.children[1].pointer = 0x0, want the address of a struct", is: arrow.ErrInvalid},
		{name: "column released", set: inChild(0, func(_ *foreignArray, n *foreignNode) { n.Release = 0 }), want: "@.children[0].release = NULL", is: cdevice.ErrReleased},
		{name: "column is the batch", set: func(_ *foreignArray, n *foreignNode) { n.entries[1] = addressOf(n.ArrowArray) }, want: "@.children[1].n_buffers = 1, want 2 for int64", is: arrow.ErrInvalid},
		{name: "column shorter", set: inChild(1, both(length(7), nulls(-1))), want: "@.children[1].length = 7, want at least 8", is: arrow.ErrInvalid},
		{name: "column shorter but for its offset", set: inChild(1, both(offset(1), both(length(7), nulls(-1)))), want: "@.children[1].length = 7, want at least 8", is: arrow.ErrInvalid},
		{name: "dictionary", set: func(_ *foreignArray, n *foreignNode) { n.Dictionary = n.entries[0] }, want: "@.dictionary = 0x", is: arrow.ErrInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.base = "int64"
			set := row.set
			row.set = func(f *foreignArray, _ *foreignNode) { f.base = f.root; set(f, f.root) }
			eachKind(t, func(t *testing.T, k kind) { row.run(t, asBatch, k) })
		})
	}
}

// As an array, a struct keeps its own nulls and its own offset.
func TestStructArrayRootKeepsItsNullsAndOffset(t *testing.T) {
	checkLeaks(t)
	f := foreignCase(t, "struct", asArray)
	defer f.free()
	f.root.Offset, f.root.Length, f.root.NullCount = 1, 4, 1
	got, err := validated(f.importWith(f.newSchema(t)))
	require.NoError(t, err)
	view, err := hostView(got)
	require.NoError(t, err)
	arr := view.(arrow.Array)
	assert.Equal(t, 4, arr.Len())
	assert.True(t, arr.IsNull(0), "element 1 of the case is null")
	assert.True(t, arr.IsValid(1))
	view.Release()
	got.Release()
	assertReleased(t, f, 1)
}
