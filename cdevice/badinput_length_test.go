package cdevice_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

func TestBadLengths(t *testing.T) {
	const most = math.MaxInt64
	bitmapOnRunEnds := func(bits byte, count int64) corruption {
		return func(f *foreignArray, n *foreignNode) {
			bitmap := allocC[byte](f.arena, slack)
			bitmap[0] = bits
			n.children[0].pointers[0], n.children[0].NullCount = sliceAddress(bitmap), count
		}
	}
	allValid := func(f *foreignArray, n *foreignNode) {
		bitmap := allocC[byte](f.arena, slack)
		for i := range bitmap {
			bitmap[i] = 0xff
		}
		n.pointers[0], n.NullCount = sliceAddress(bitmap), -1
	}
	testRows(t, []badRow{
		{name: "length -1", base: "int64", set: length(-1), want: "@.length = -1, want at least 0", is: arrow.ErrInvalid},
		{name: "length least", base: "null", set: length(math.MinInt64), want: "@.length = -9223372036854775808, want at least 0", is: arrow.ErrInvalid},
		{name: "length -1 of a child", base: "map", set: inChild(0, inChild(1, length(-1))), want: "@.children[0].children[1].length = -1, want at least 0", is: arrow.ErrInvalid},
		{name: "length -1 of a dictionary", base: "dictionary_int16", set: inDict(length(-1)), want: "@.dictionary.length = -1, want at least 0", is: arrow.ErrInvalid},
		{name: "length most, int64", only: asArray, base: "int64", set: length(most), want: "@.buffers[0].length = 1152921504606846976, want at most 140737488355328", is: arrow.ErrInvalid},
		{name: "offset most, wide binary", typ: &arrow.FixedSizeBinaryType{ByteWidth: 1 << 20}, text: `[]`, only: asArray, set: both(offset(1<<28), length(1)), want: "@.buffers[1].length = 281474977759232, want at most 140737488355328", is: arrow.ErrInvalid},
		{name: "offset most, large list", base: "large_list", only: asArray, set: offset(1 << 61), want: "@.buffers[0].length", is: arrow.ErrInvalid},
		{name: "length most, bool, full", only: asArray, base: "bool", set: length(most), full: true, want: "length = ", is: arrow.ErrInvalid},
		{name: "length most, utf8, full", only: asArray, base: "utf8", set: length(most), full: true, want: "length = ", is: arrow.ErrInvalid},
		{name: "length most, empty struct, full", only: asArray, base: "struct_empty", set: length(most), full: true, want: "length = ", is: arrow.ErrInvalid},
		{name: "length most, struct", base: "struct", set: length(most), want: "@.buffers[0].length = 1152921504606846976, want at most 140737488355328", is: arrow.ErrInvalid},
		{name: "length most, fixed size list", base: "fixed_size_list", set: length(most), want: "@.buffers[0].length = 1152921504606846976, want at most 140737488355328", is: arrow.ErrInvalid},
		{name: "length most, sparse union", base: "sparse_union", set: length(most), want: "@.buffers[0].length = 9223372036854775807, want at most 140737488355328", is: arrow.ErrInvalid},
		{name: "length most, run ends, full", only: asArray, base: "run_end_encoded_int64", set: length(most), full: true, want: "run_ends[2] = 6, want at least 9223372036854775807", is: arrow.ErrInvalid},
		{name: "length most, a list's child, full", base: "list", set: inChild(0, both(length(most), nulls(-1))), full: true, want: "length = ", is: arrow.ErrInvalid},

		{name: "offset -1", base: "utf8", set: offset(-1), want: "@.offset = -1, want 0 to ", is: arrow.ErrInvalid},
		{name: "offset least", base: "struct", set: inChild(0, offset(math.MinInt64)), want: "@.children[0].offset = -9223372036854775808, want 0 to ", is: arrow.ErrInvalid},
		{name: "offset and length overflow", base: "int64", set: offset(most), want: "@.offset = 9223372036854775807, want 0 to 9223372036854775799 with length 8", is: arrow.ErrInvalid},
		{name: "offset and length overflow by one", base: "null", set: offset(most - 3), want: "@.offset = 9223372036854775804, want 0 to 9223372036854775803 with length 4", is: arrow.ErrInvalid},
		{name: "offset and length reach the end", base: "null", set: offset(most - 4), full: true},
		{name: "offset most, length 0", base: "int64/empty", set: offset(most), full: true},
		{name: "offset most, length 0, utf8", base: "utf8/empty", set: offset(most), full: true},
		{name: "offset most, length 0, list", base: "list/empty", set: offset(most), full: true},
		{name: "offset most, length 0, list view", base: "large_list_view/empty", set: offset(most), full: true},
		{name: "offset most, length 0, view", base: "utf8_view/empty", set: offset(most), full: true},
		{name: "offset most, length 0, dictionary", base: "dictionary_int64/empty", set: offset(most), full: true},
		{name: "offset most, length 0, dense union", base: "dense_union/empty", set: offset(most), full: true},
		{name: "offset most, length 0, run ends", base: "run_end_encoded_int16/empty", set: offset(most), full: true},
		{name: "offset most, length 0, empty struct", base: "struct_empty/empty", set: offset(most), full: true},
		{name: "offset most, length 0, sparse union", base: "sparse_union/empty", set: offset(most), want: "@.children[0].length = 0, want at least 9223372036854775807", is: arrow.ErrInvalid},

		{name: "null_count -2", base: "int64", set: nulls(-2), want: "@.null_count = -2, want -1 to 8", is: arrow.ErrInvalid},
		{name: "null_count more than length", base: "int64", set: nulls(9), want: "@.null_count = 9, want -1 to 8", is: arrow.ErrInvalid},
		{name: "null_count most", base: "dictionary_int8", set: inDict(nulls(most)), want: "@.dictionary.null_count = 9223372036854775807, want -1 to 3", is: arrow.ErrInvalid},
		{name: "null_count without a bitmap", base: "int64", set: nullBuffer(0), want: "@.buffers[0] = NULL, want a validity bitmap for null_count 2", is: arrow.ErrInvalid},
		{name: "null_count without a bitmap, struct", base: "struct", set: nullBuffer(0), want: "@.buffers[0] = NULL, want a validity bitmap for null_count 2", is: arrow.ErrInvalid},
		{name: "null_count -1 without a bitmap", base: "utf8", set: both(nullBuffer(0), nulls(-1)), full: true},
		{name: "null_count -1 with a bitmap", base: "large_utf8", set: nulls(-1), full: true},
		{name: "null_count of a type without a bitmap", base: "dense_union", set: nulls(3), full: true},
		{name: "null_count -1 of map keys", base: "map", set: inChild(0, inChild(0, allValid)), full: true},
		{name: "null_count -1 of map entries", base: "map", set: inChild(0, allValid), full: true},
		{name: "null_count -1 of a dictionary", base: "dictionary_int8", set: inDict(allValid), full: true},
		{name: "null_count -1 of a union's child", base: "dense_union", set: inChild(1, allValid), full: true},
		{name: "null_count 0 of nulls", base: "null", set: nulls(0), full: true},

		{name: "struct child too short", base: "struct", set: inChild(0, length(5)), want: "@.children[0].length = 5, want at least 6", is: arrow.ErrInvalid},
		{name: "struct child too short for an offset", base: "struct", set: offset(1), want: "@.children[0].length = 6, want at least 7", is: arrow.ErrInvalid},
		{name: "struct child longer", only: asArray, base: "struct", set: both(length(5), nulls(-1)), full: true},
		{name: "struct in a struct too short", base: "struct_nested", set: inChild(0, length(1)), want: "@.children[0].", is: arrow.ErrInvalid},
		{name: "fixed size list child too short", base: "fixed_size_list", set: inChild(0, both(length(11), nulls(-1))), want: "@.children[0].length = 11, want at least 12", is: arrow.ErrInvalid},
		{name: "sparse union child too short", base: "sparse_union", set: inChild(1, length(5)), want: "@.children[1].length = 5, want at least 6", is: arrow.ErrInvalid},
		{name: "map keys too short", base: "map", set: inChild(0, inChild(0, length(1))), want: "@.children[0].children[0].length = 1, want at least 4", is: arrow.ErrInvalid},
		{name: "no run ends", base: "run_end_encoded_int32", set: inChild(0, length(0)), want: "@.children[0].length = 0, want at least 1", is: arrow.ErrInvalid},
		{name: "values short of run ends", base: "run_end_encoded_int32", set: inChild(1, length(2)), want: "@.children[1].length = 2, want at least 3", is: arrow.ErrInvalid},
		{name: "run ends with nulls", base: "run_end_encoded_int32", set: bitmapOnRunEnds(0b101, 1), want: "@.children[0].null_count = 1, want 0 for run ends", is: arrow.ErrInvalid},
		{name: "run ends with uncounted nulls, full", base: "run_end_encoded_int32", set: bitmapOnRunEnds(0b101, -1), full: true, want: "null_count", is: arrow.ErrInvalid},
		{name: "run ends with a bitmap", base: "run_end_encoded_int32", set: bitmapOnRunEnds(0b111, -1), full: true},
		{name: "run ends of length most", typ: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.Null), text: `[null,null]`, set: both(inChild(0, length(1<<60)), inChild(1, length(1<<60))), only: asArray, want: "@.children[0].buffers[1].length = 4611686018427387904, want at most 140737488355328", is: arrow.ErrInvalid},
		{name: "run ends of length most, full", base: "run_end_encoded_int32", full: true, want: "length = ", is: arrow.ErrInvalid,
			set: both(both(inChild(0, length(most)), inChild(1, both(length(most), nulls(-1)))), bitmapOnRunEnds(0xff, -1))},
	})
}

// Where elements take no memory, a length may be anything.
func TestHugeArraysOfNothing(t *testing.T) {
	const most = math.MaxInt64
	unionOf := func(of func([]arrow.Field, []arrow.UnionTypeCode) arrow.DataType) arrow.DataType {
		return of([]arrow.Field{{Name: "n", Type: arrow.Null}}, []arrow.UnionTypeCode{0})
	}
	sparse := unionOf(func(f []arrow.Field, c []arrow.UnionTypeCode) arrow.DataType { return arrow.SparseUnionOf(f, c) })
	dense := unionOf(func(f []arrow.Field, c []arrow.UnionTypeCode) arrow.DataType { return arrow.DenseUnionOf(f, c) })
	pairs := arrow.FixedSizeListOf(2, arrow.Null)
	at := func(o, l int64) corruption { return both(offset(o), length(l)) }
	testRows(t, []badRow{
		{name: "sparse union, offset most", typ: sparse, text: `[]`, set: both(at(most, 0), inChild(0, length(most))), full: true},
		{name: "sparse union, offset most, an element", typ: sparse, text: `[]`, set: both(at(most-1, 1), inChild(0, length(most))), only: asArray, want: "@.buffers[0].length = 9223372036854775807, want at most 140737488355328", is: arrow.ErrInvalid},
		{name: "dense union, child of length most", typ: dense, text: `[[0,null]]`, set: both(put[int32](1, 0, math.MaxInt32), inChild(0, length(most))), full: true},
		{name: "dense union, offset of its child most", typ: dense, text: `[[0,null]]`, set: both(put[int32](1, 0, 5), inChild(0, at(most-6, 6))), full: true},
		{name: "fixed size list, twice its offset is most", typ: pairs, text: `[]`, set: both(offset(1<<62-1), inChild(0, length(most))), full: true},
		{name: "fixed size list, twice its length overflows", typ: pairs, text: `[]`, set: both(length(1<<62), inChild(0, length(most))), only: asArray, want: "@.length = 4611686018427387904, want fewer elements", is: arrow.ErrInvalid},
		{name: "fixed size list, twice its length overflows, full", typ: pairs, text: `[]`, set: both(length(1<<62), inChild(0, length(most))), only: asArray, full: true, want: "length = ", is: arrow.ErrInvalid},
		{name: "fixed size list, child too short by one", typ: pairs, text: `[[null,null]]`, set: inChild(0, both(length(1), nulls(1))), want: "@.children[0].length = 1, want at least 2", is: arrow.ErrInvalid},
		{name: "fixed size binary of 0 bytes, data NULL", typ: &arrow.FixedSizeBinaryType{}, text: `["",""]`, set: nullBuffer(1), full: true},
		{name: "run ends of nulls", typ: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int64, arrow.Null), text: `[null,null]`, set: both(both(length(most), inChild(0, put[int64](1, 0, most))), inChild(1, length(most))), only: asArray, full: true},
		{name: "struct of nulls, length most", typ: arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null}), text: `[]`, set: both(length(most), inChild(0, length(most))), only: asArray, full: true},
		{name: "fixed size binary of 0 bytes, length most", typ: &arrow.FixedSizeBinaryType{}, text: `[]`, set: both(length(most), nullBuffer(0)), only: asArray, full: true},
		{name: "struct of nulls, offset most", typ: arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null}), text: `[]`, set: both(offset(most), inChild(0, length(most))), full: true},
	})
}

// A list of more nulls than could ever be printed.
func TestHugeListOfNothing(t *testing.T) {
	checkLeaks(t)
	f := newForeign(t, fromJSON(t, arrow.LargeListOf(arrow.Null), `[[null]]`), asArray)
	defer f.free()
	valuesAt[int64](f.root, 1)[1] = math.MaxInt64
	f.root.children[0].Length = math.MaxInt64
	got, err := validated(f.importKnown())
	require.NoError(t, err)
	view, err := hostView(got)
	require.NoError(t, err)
	view.Release()
	copied, err := copyToHost(got, nil)
	require.NoError(t, err)
	copied.Release()
	got.Release()
	assertReleased(t, f, 1)
}

// nested returns list<list<...int32>> of that many lists, and a foreign array of it.
func nested(f *arena, lists int, counts []int64) (arrow.DataType, *cdevice.CArrowDeviceArray) {
	structs := allocC[abi.ArrowArray](f, lists+1)
	var dt arrow.DataType = arrow.PrimitiveTypes.Int32
	for i := range structs {
		a := &structs[i]
		*a = abi.ArrowArray{NBuffers: 2, Buffers: sliceAddress(allocC[uintptr](f, 2)), Release: cpeer.CountArrayRelease, PrivateData: sliceAddress(counts[1:])}
		if i > 0 {
			entry := allocC[uintptr](f, 1)
			entry[0] = addressOf(&structs[i-1])
			a.NChildren, a.Children = 1, sliceAddress(entry)
			dt = arrow.ListOf(dt)
		}
	}
	out := &allocC[cdevice.CArrowDeviceArray](f, 1)[0]
	*out = *abi.As[cdevice.CArrowDeviceArray](&abi.ArrowDeviceArray{Array: structs[lists], DeviceID: -1, DeviceType: 1})
	out.Array.PrivateData = sliceAddress(counts)
	return dt, out
}

func TestDepthHasALimit(t *testing.T) {
	for _, row := range []struct {
		lists int
		deep  bool
	}{{63, false}, {64, false}, {65, true}, {66, true}, {1000, true}} {
		t.Run(fmt.Sprint(row.lists), func(t *testing.T) {
			checkLeaks(t)
			f := &foreignArray{arena: newArena()}
			defer f.free()
			f.counts = allocC[int64](f.arena, 2)
			f.field.Type, f.device = nested(f.arena, row.lists, f.counts)
			got, err := validated(f.importKnown())
			if row.deep {
				assert.Nil(t, got)
				assert.ErrorContains(t, err, "type: invalid: nested deeper than 64")
				assert.ErrorIs(t, err, arrow.ErrInvalid)
			} else if assert.NoError(t, err) {
				noPanic(t, "read", func() {
					view, copied := readAll(t, got)
					assert.NoError(t, view)
					assert.NoError(t, copied)
				})
				passOn(t, got)
				got.Release()
			}
			assertReleased(t, f, 1)
		})
	}
}
