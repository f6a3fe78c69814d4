package cdevice_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// An ArrayView has what the array of a HostView has, for each type, of batches and of arrays.
func TestArrayViewHasWhatAHostViewHas(t *testing.T) {
	eachForeign(t, cases.Variants, asBatch, func(t *testing.T, f *foreignArray) {
		got, err := f.importKnown()
		require.NoError(t, err)
		defer got.Release()
		batch := got.(*cdevice.RecordBatch)
		first, err := batch.ColumnView(background, 1) // before the nodes are made
		require.NoError(t, err)
		rec, err := batch.HostView(background)
		require.NoError(t, err)
		defer rec.Release()
		sameElements(t, rec.Column(1), first)
		column := batch.Column(1)
		defer column.Release()
		again, err := column.View(background)
		require.NoError(t, err)
		sameElements(t, rec.Column(1), again)
		half := batch.NumRows() / 2
		part, err := batch.Slice(half, batch.NumRows())
		require.NoError(t, err)
		defer part.Release()
		cut, err := part.ColumnView(background, 0)
		require.NoError(t, err)
		want := array.NewSlice(rec.Column(0), half, batch.NumRows())
		defer want.Release()
		sameElements(t, want, cut)
	})
}

// sameElements asserts that v has the elements of arr, and that it has them as no other type.
func sameElements(t *testing.T, arr arrow.Array, v cdevice.ArrayView) {
	t.Helper()
	require.Equal(t, arr.Len(), v.Len())
	assert.True(t, arrow.TypeEqual(arr.DataType(), v.DataType()))
	valid, nulls := v.Validity(), 0
	for i := range arr.Len() {
		null := arr.IsNull(i) || arr.DataType().ID() == arrow.NULL
		assert.Equal(t, null, v.IsNull(i), i)
		assert.Equal(t, !null, valid.At(i), i)
		if null {
			nulls++
		}
	}
	assert.Equal(t, nulls, v.NullN())
	assert.Equal(t, arr.Len()-nulls, valid.Count())
	if ext, ok := arr.(array.ExtensionArray); ok {
		arr = ext.Storage()
	}
	sameFixedWidth(t, arr, v)
	sameStrings(t, arr, v)
	bools, err := v.Bools()
	if arr, ok := arr.(*array.Boolean); ok {
		require.NoError(t, err)
		for i := range arr.Len() {
			assert.Equal(t, arr.Value(i), bools.At(i))
		}
	} else {
		assert.ErrorIs(t, err, arrow.ErrType)
	}
}

func sameFixedWidth(t *testing.T, arr arrow.Array, v cdevice.ArrayView) {
	t.Helper()
	if dict, ok := arr.(*array.Dictionary); ok {
		arr = dict.Indices()
	}
	sameValues[int8](t, arr, v)
	sameValues[int16](t, arr, v)
	sameValues[int32](t, arr, v)
	sameValues[int64](t, arr, v)
	sameValues[uint8](t, arr, v)
	sameValues[uint16](t, arr, v)
	sameValues[uint32](t, arr, v)
	sameValues[uint64](t, arr, v)
	sameValues[float16.Num](t, arr, v)
	sameValues[float32](t, arr, v)
	sameValues[float64](t, arr, v)
	sameValues[decimal.Decimal32](t, arr, v)
	sameValues[decimal.Decimal64](t, arr, v)
	sameValues[decimal.Decimal128](t, arr, v)
	sameValues[decimal.Decimal256](t, arr, v)
	sameValues[arrow.Date32](t, arr, v)
	sameValues[arrow.Date64](t, arr, v)
	sameValues[arrow.Time32](t, arr, v)
	sameValues[arrow.Time64](t, arr, v)
	sameValues[arrow.Timestamp](t, arr, v)
	sameValues[arrow.Duration](t, arr, v)
	sameValues[arrow.MonthInterval](t, arr, v)
	sameValues[arrow.DayTimeInterval](t, arr, v)
	sameValues[arrow.MonthDayNanoInterval](t, arr, v)
}

// sameValues compares the values, if arr has values of type T; otherwise there must be none.
func sameValues[T arrow.FixedWidthType](t *testing.T, arr arrow.Array, v cdevice.ArrayView) {
	t.Helper()
	got, err := cdevice.Values[T](v)
	var want func(i int) T
	switch arr := arr.(type) {
	case interface{ Value(int) T }:
		want = arr.Value
	default:
		assert.ErrorIs(t, err, arrow.ErrType)
		return
	}
	require.NoError(t, err)
	require.Len(t, got, arr.Len())
	for i := range got {
		if !arr.IsNull(i) {
			assert.Equal(t, fmt.Sprint(want(i)), fmt.Sprint(got[i]))
		}
	}
}

// sameStrings compares the elements, if arr has strings or bytes; otherwise there must be none.
func sameStrings(t *testing.T, arr arrow.Array, v cdevice.ArrayView) {
	t.Helper()
	got, err := v.Strings(background)
	var want func(i int) string
	switch arr := arr.(type) {
	case array.StringLike:
		want = arr.Value
	case interface{ Value(int) []byte }:
		want = func(i int) string { return string(arr.Value(i)) }
	default:
		assert.ErrorIs(t, err, arrow.ErrType)
		return
	}
	require.NoError(t, err)
	require.Equal(t, arr.Len(), got.Len())
	for i := range arr.Len() {
		if !arr.IsNull(i) {
			assert.Equal(t, want(i), got.At(i))
		}
	}
}

// The elements are those in the memory of the producer.
func TestArrayViewCopiesNothing(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	batch := wrap(t, rec)
	for i := range batch.NumCols() {
		column := rec.Column(i)
		v, err := batch.ColumnView(background, i)
		require.NoError(t, err)
		switch column := column.(type) {
		case *array.Int32:
			values, err := cdevice.Values[int32](v)
			require.NoError(t, err)
			assert.Same(t, &column.Int32Values()[0], &values[0])
		case *array.String:
			text, err := v.Strings(background)
			require.NoError(t, err)
			assert.Equal(t, unsafe.StringData(column.Value(0)), unsafe.StringData(text.At(0)))
		default:
			t.Errorf("column of type %s", column.DataType())
		}
	}
}

// Another type is an error with both types and the column.
func TestArrayViewOfAnotherType(t *testing.T) {
	checkLeaks(t)
	rec := oneColumn(t, fromJSON(t, arrow.FixedWidthTypes.Timestamp_ns, `[1,2]`))
	batch := wrap(t, rec)
	v, err := batch.ColumnView(background, 0)
	require.NoError(t, err)
	_, err = cdevice.Values[int64](v)
	assert.EqualError(t, err, "cdevice: read: column[0].type = timestamp[ns, tz=UTC], with values of arrow.Timestamp, want values of int64: read it with Values[arrow.Timestamp]: type error")
	_, err = v.Bools()
	assert.ErrorContains(t, err, "column[0].type = timestamp[ns, tz=UTC], with values of arrow.Timestamp, want values of bool")
	_, err = v.Strings(background)
	assert.EqualError(t, err, "cdevice: read: column[0].type = timestamp[ns, tz=UTC], want text or bytes: type error")
	type own int64
	_, err = cdevice.Values[own](v)
	assert.ErrorIs(t, err, arrow.ErrType)

	a := kept(cdevice.WrapArray(fromJSON(t, arrow.BinaryTypes.String, `["a"]`), device.CPUDevice()))(t)
	text, err := a.View(background)
	require.NoError(t, err)
	_, err = cdevice.Values[uint8](text)
	assert.EqualError(t, err, "cdevice: read: array.type = utf8, want values of uint8: read it with Strings: type error")
	for _, i := range []int{-1, 1, math.MaxInt} {
		_, err = batch.ColumnView(background, i)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.ErrorContains(t, err, fmt.Sprintf("cdevice: read: i = %d, want an index of the 1 column", i))
	}
}

// A view is refused, or waits, as a HostView is and does.
func TestArrayViewOfADevice(t *testing.T) {
	checkLeaks(t)
	there := batchOnDevice(t, cuda, 0)
	defer there.Release()
	_, err := there.ColumnView(background, 0)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "cuda:3")

	event := &testEvent{}
	testEvents[31] = event
	pending := batchOnDevice(t, extDev, 31)
	defer pending.Release()
	v, err := pending.ColumnView(background, 0)
	require.NoError(t, err)
	assert.Equal(t, testEvent{waits: 1, closes: 1}, *event)
	values, err := cdevice.Values[int32](v)
	require.NoError(t, err)
	assert.Equal(t, []int32{1, 2}, values)

	never := batchOnDevice(t, stuck, 1)
	defer never.Release()
	ctx, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	_, err = never.ColumnView(ctx, 0)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// A view holds no reference, and says so after the last one.
func TestArrayViewAfterTheRelease(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	v, err := batch.ColumnView(background, 0)
	require.NoError(t, err)
	part, err := batch.Slice(0, 1)
	require.NoError(t, err)
	batch.Release()
	_, err = cdevice.Values[int32](v)
	require.NoError(t, err, "a slice of the batch holds the memory")
	part.Release()
	for name, of := range map[string]cdevice.ArrayView{"released": v, "zero": {}} {
		_, err = cdevice.Values[int32](of)
		assert.EqualError(t, err, "cdevice: read: ArrayView: invalid: already released: hold its batch or array while it is used", name)
		_, err = of.Bools()
		assert.ErrorIs(t, err, cdevice.ErrReleased, name)
		_, err = of.Strings(background)
		assert.ErrorIs(t, err, cdevice.ErrReleased, name)
	}
	var none cdevice.ArrayView
	assert.Zero(t, none.Len())
	assert.Zero(t, none.NullN())
	assert.Nil(t, none.DataType())
}

// An index out of range panics, as that of a slice does, and reads no memory.
func TestArrayViewIndexOutOfRange(t *testing.T) {
	checkLeaks(t)
	for _, name := range []string{"utf8", "large_utf8", "utf8_view", "fixed_size_binary"} {
		for _, variant := range []cases.Variant{cases.Nulls, cases.Valid, cases.Sliced, cases.Empty} {
			f := foreignCase(t, name+"/"+string(variant), asBatch)
			got, err := f.importKnown()
			require.NoError(t, err)
			v, err := got.(*cdevice.RecordBatch).ColumnView(background, 0)
			require.NoError(t, err)
			text, err := v.Strings(background)
			require.NoError(t, err)
			for _, i := range []int{-1, v.Len(), math.MaxInt, math.MinInt} {
				assert.Panics(t, func() { text.At(i) }, "%s/%s: %d", name, variant, i)
				assert.Panics(t, func() { v.IsNull(i) }, "%s/%s: %d", name, variant, i)
			}
			got.Release()
			f.free()
		}
	}
}

// Offsets and views of a producer that lead out of the bytes are errors. What is below a null is not looked at.
func TestArrayViewOfBadStrings(t *testing.T) {
	for name, row := range map[string]struct {
		of  string
		bad func(n *foreignNode)
		err string // without it, all elements can be read
	}{
		"descending":         {"utf8", func(n *foreignNode) { valuesAt[int32](n, 1)[2] = math.MaxInt32 }, "column[1].offsets[3] = 1, want at least 2147483647, the offset before it"},
		"negative":           {"binary", func(n *foreignNode) { valuesAt[int32](n, 1)[0] = -1 }, "column[1].offsets[0] = -1, want at least 0"},
		"no bytes":           {"utf8", func(n *foreignNode) { n.setNull(2) }, "column[1].buffers[2] = NULL, want "},
		"large, descending":  {"large_utf8", func(n *foreignNode) { valuesAt[int64](n, 1)[1] = math.MaxInt64 }, "column[1].offsets[2] = 1, want at least 9223372036854775807"},
		"too large":          {"large_utf8", func(n *foreignNode) { valuesAt[int64](n, 1)[n.Length] = math.MaxInt64 }, "column[1].offsets["},
		"a view of nothing":  {"utf8_view", func(n *foreignNode) { valuesAt[[4]int32](n, 1)[0] = [4]int32{13, 0, 77, 0} }, "column[1].views[0].buffer_index = 77"},
		"a view beyond":      {"utf8_view", func(n *foreignNode) { valuesAt[[4]int32](n, 1)[0] = [4]int32{13, 0, 0, math.MaxInt32} }, "column[1].views[0].offset = 2147483647"},
		"a view before":      {"binary_view", func(n *foreignNode) { valuesAt[[4]int32](n, 1)[0] = [4]int32{13, 0, 0, -1} }, "column[1].views[0].offset = -1"},
		"a negative view":    {"utf8_view", func(n *foreignNode) { valuesAt[[4]int32](n, 1)[0] = [4]int32{-1, 0, 0, 0} }, "column[1].views[0].length = -1"},
		"a null of nothing":  {"utf8_view", func(n *foreignNode) { valuesAt[[4]int32](n, 1)[1] = [4]int32{13, 0, 77, 0} }, ""},
		"a negative null":    {"utf8_view", func(n *foreignNode) { valuesAt[[4]int32](n, 1)[1] = [4]int32{-1, 0, 0, 0} }, ""},
		"no UTF-8, and read": {"utf8", func(n *foreignNode) { valuesAt[uint8](n, 2)[0] = 0xff }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			f := foreignCase(t, row.of, asBatch)
			defer f.free()
			row.bad(f.base)
			got, err := f.importKnown()
			require.NoError(t, err)
			defer got.Release()
			v, err := got.(*cdevice.RecordBatch).ColumnView(background, 1)
			require.NoError(t, err)
			text, err := v.Strings(background)
			if row.err != "" {
				assert.ErrorIs(t, err, arrow.ErrInvalid)
				assert.ErrorContains(t, err, "cdevice: read: "+row.err)
				assert.Zero(t, text.Len())
				return
			}
			require.NoError(t, err)
			for i := range text.Len() {
				_ = strings.Clone(text.At(i))
			}
			assert.True(t, !v.IsNull(1) || text.At(1) == "")
		})
	}
}

// The check of a long array ends with its context.
func TestArrayViewChecksOffsetsForALimitedTime(t *testing.T) {
	checkLeaks(t)
	const n = 3 << 20
	offsets := make([]int32, n+1)
	var pins runtime.Pinner
	pins.Pin(&offsets[0])
	data := cdevice.ArrayData{Length: n, Buffers: []device.Ptr{0, device.Ptr(sliceAddress(offsets)), 0}}
	a, err := cdevice.NewArray(device.CPUDevice(), arrow.BinaryTypes.String, data, cdevice.Lifetime{Release: pins.Unpin})
	require.NoError(t, err)
	defer a.Release()
	v, err := a.View(background)
	require.NoError(t, err)
	_, err = v.Strings(background)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = v.Strings(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestBitmapOfAnArrayView(t *testing.T) {
	checkLeaks(t)
	rec := oneColumn(t, fromJSON(t, arrow.FixedWidthTypes.Boolean, `[true,null,false,true,true,false,true,true,null,true]`))
	part := kept(wrap(t, rec).Slice(1, 10))(t)
	v, err := part.ColumnView(background, 0)
	require.NoError(t, err)
	valid := v.Validity()
	bits, offset := valid.Bytes()
	assert.Equal(t, 1, offset)
	assert.Equal(t, byte(0b11111101), bits[0])
	assert.Equal(t, []int{9, 7}, []int{valid.Len(), valid.Count()})
	bools, err := v.Bools()
	require.NoError(t, err)
	assert.Equal(t, [4]bool{false, true, true, false}, [4]bool{bools.At(1), bools.At(2), bools.At(3), bools.At(4)})

	all, err := kept(wrap(t, oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int8, `[1,2]`))).Slice(0, 2))(t).ColumnView(background, 0)
	require.NoError(t, err)
	valid = all.Validity()
	bits, _ = valid.Bytes()
	assert.Nil(t, bits, "no bitmap")
	assert.Equal(t, 2, valid.Count())
}
