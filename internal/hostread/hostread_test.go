package hostread

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// node returns a node of values, which a test keeps.
func node(dt arrow.DataType, length int64, buffers ...[]byte) *tree.Node {
	_, l := layout.Of(dt)
	n := &tree.Node{Type: dt, Layout: l, Length: length, Nulls: tree.UnknownNulls}
	for _, b := range buffers {
		n.Buffers = append(n.Buffers, abi.AddressOf(b))
	}
	return n
}

func bytesOf[T arrow.FixedWidthType](values ...T) []byte { return arrow.GetBytes(values) }

func TestSizes(t *testing.T) {
	text := []byte("abcdefg")
	offsets := bytesOf[int32](0, 2, 5, 7)
	large := bytesOf[int64](0, 2, 5, 7)
	views := make([]byte, 3*layout.ViewSize)
	sizes := bytesOf[int64](7, 0)
	texts := func() *tree.Node { return node(arrow.BinaryTypes.String, 3, nil, offsets, text) }
	for name, row := range map[string]struct {
		n    *tree.Node
		want []int64
		bad  string
	}{
		"fixed":                 {node(arrow.PrimitiveTypes.Int32, 3, nil, offsets), []int64{1, 12}, ""},
		"text":                  {texts(), []int64{1, 16, 7}, ""},
		"text, the first of it": {func() *tree.Node { n := texts().Slice(0, 2); return &n }(), []int64{1, 12, 5}, ""},
		"text, the last of it":  {func() *tree.Node { n := texts().Slice(1, 3); return &n }(), []int64{1, 16, 7}, ""},
		"no text":               {node(arrow.BinaryTypes.String, 0, nil, offsets, nil), []int64{0, 4, 0}, ""},
		"large text":            {node(arrow.BinaryTypes.LargeString, 3, nil, large, text), []int64{1, 32, 7}, ""},
		"views":                 {node(arrow.BinaryTypes.StringView, 3, nil, views, text, nil, sizes), []int64{1, 48, 7, 0}, ""},
		"text without bytes":    {node(arrow.BinaryTypes.String, 3, nil, offsets, nil), nil, "buffers[2] = NULL, want 7 bytes"},
		"negative text":         {node(arrow.BinaryTypes.String, 1, nil, bytesOf[int32](0, -1), text), nil, "offsets[1] = -1"},
		"too much text":         {node(arrow.BinaryTypes.LargeString, 1, nil, bytesOf[int64](0, layout.MaxBufferSize+1), text), nil, "offsets[1] = 140737488355329"},
		"a negative view size":  {node(arrow.BinaryTypes.StringView, 3, nil, views, text, nil, bytesOf[int64](7, -1)), nil, "buffers[3].length = -1"},
		"views without bytes":   {node(arrow.BinaryTypes.StringView, 3, nil, views, text, nil, bytesOf[int64](7, 1)), nil, "buffers[3] = NULL, want 1 bytes"},
	} {
		got, err := Sizes(nil, row.n, row.n.Storage())
		_, checked := CheckSizes(nil, row.n)
		assert.Equal(t, err, checked, name)
		if row.bad != "" {
			assert.ErrorContains(t, err, row.bad, name)
			continue
		}
		assert.NoError(t, err, name)
		assert.Equal(t, row.want, got, name)
	}
	runtime.KeepAlive([][]byte{text, offsets, large, views, sizes})
}

// Nulls are counted from the offset on, with and without checks of a context.
func TestNulls(t *testing.T) {
	bitmap := []byte{0b10101010, 0b1}
	for _, row := range []struct{ offset, length, nulls, want, counted int64 }{
		{0, 9, tree.UnknownNulls, 4, 4}, {1, 7, tree.UnknownNulls, 3, 3}, {1, 1, tree.UnknownNulls, 0, 0},
		{0, 0, tree.UnknownNulls, 0, 0}, {0, 8, 7, 7, 4},
	} {
		n := node(arrow.PrimitiveTypes.Int8, row.length, bitmap, nil)
		n.Offset, n.Nulls = row.offset, row.nulls
		assert.Equal(t, row.want, Nulls(n))
		assert.Equal(t, row.counted, CountNulls(n))
		got, err := (&Pace{Ctx: t.Context(), Op: "count"}).Nulls(n)
		assert.NoError(t, err)
		assert.Equal(t, row.want, got)
		valid, nulls := IsValid(n), int64(0)
		for i := range int(row.length) {
			if !valid(i) {
				nulls++
			}
		}
		assert.Equal(t, row.counted, nulls)
	}
	n := node(arrow.PrimitiveTypes.Int8, 3, nil, nil)
	assert.Zero(t, CountNulls(n))
	assert.True(t, IsValid(n)(2))
}

func TestValuesAndRunEnds(t *testing.T) {
	n := node(arrow.PrimitiveTypes.Int32, 3, nil, bytesOf[int32](1, 2, 3, 4))
	n.Offset = 1
	assert.Equal(t, []int32{2, 3}, Values[int32](n, 1, 2))
	for _, ends := range []*tree.Node{
		node(arrow.PrimitiveTypes.Int16, 3, nil, bytesOf[int16](1, 20, 300)),
		node(arrow.PrimitiveTypes.Int32, 3, nil, bytesOf[int32](1, 20, 300)),
		node(arrow.PrimitiveTypes.Int64, 3, nil, bytesOf[int64](1, 20, 300)),
	} {
		ends.Offset = 1
		assert.EqualValues(t, 300, RunEnd(ends, 1), "%s", ends.Type)
	}
}

func TestLists(t *testing.T) {
	for _, row := range []struct {
		offset, size int32
		bad          string
	}{
		{0, 0, ""}, {2, 3, ""}, {5, 0, ""}, {-1, 1, "offsets[7] = -1, want 0 to 5"}, {6, 0, "offsets[7] = 6"},
		{2, 4, "sizes[7] = 4, want 0 to 3"}, {2, -1, "sizes[7] = -1"}, {math.MaxInt32, math.MaxInt32, "offsets[7]"},
	} {
		if err := CheckList(7, row.offset, row.size, 5); row.bad == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, row.bad)
		}
	}
}

func TestOffsets(t *testing.T) {
	pace := &Pace{Op: "read"}
	for _, row := range []struct {
		offsets []int32
		bad     string
	}{
		{[]int32{0}, ""}, {[]int32{3, 3, 5, 7, 7, 9}, ""}, {[]int32{0, 10}, ""},
		{[]int32{-1, 0}, "offsets[0] = -1, want at least 0"},
		{[]int32{0, 1, 2, 3, 2, 5, 6}, "offsets[4] = 2, want at least 3, the offset before it"},
		{[]int32{0, math.MinInt32, 4}, "offsets[1] = -2147483648"},
		{[]int32{0, 5, 11}, "offsets[2] = 11, want at most 10"},
	} {
		if err := CheckOffsets(pace, row.offsets, 10); row.bad == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "cdevice: read: "+row.bad)
		}
	}
}

func TestViews(t *testing.T) {
	data := []byte("a text that is longer than twelve bytes")
	sizes := []int64{int64(len(data))}
	n := node(arrow.BinaryTypes.StringView, 1, nil, nil, data, nil)
	of := func(size int, prefix string, index, offset int32) *arrow.ViewHeader {
		b := binary.NativeEndian.AppendUint32(nil, uint32(size))
		b = append(append(b, prefix...), bytesOf(index, offset)...)
		return &arrow.GetData[arrow.ViewHeader](b)[0]
	}
	for name, row := range map[string]struct {
		v         *arrow.ViewHeader
		want, bad string
	}{
		"inline":           {of(4, "four", 0, 0), "four", ""},
		"whole":            {of(len(data), "a te", 0, 0), string(data), ""},
		"the end":          {of(13, " twe", 0, int32(len(data)-13)), " twelve bytes", ""},
		"negative":         {of(-1, "    ", 0, 0), "", "length = -1"},
		"of no buffer":     {of(13, "a te", 1, 0), "", "buffer_index = 1, want 0 to 0"},
		"before a buffer":  {of(13, "a te", -1, 0), "", "buffer_index = -1"},
		"beyond its end":   {of(13, "a te", 0, int32(len(data)-12)), "", "offset = 27, want 0 to 26"},
		"before its begin": {of(13, "a te", 0, -1), "", "offset = -1"},
		"another prefix":   {of(13, "b te", 0, 0), "", "prefix"},
	} {
		got, err := ViewValue(n, row.v, sizes)
		assert.Equal(t, CheckView(row.v, sizes) == nil, ViewFits(row.v, sizes), name)
		if row.bad != "" {
			assert.ErrorContains(t, err, row.bad, name)
			continue
		}
		assert.NoError(t, err, name)
		assert.Equal(t, row.want, string(got), name)
	}
	runtime.KeepAlive(data)
}

// Long work ends soon after its context, and is complete without one.
func TestPace(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	long := bytes.Repeat([]byte("ä"), 2*atOnce)
	bitmap := make([]byte, 3*atOnce)
	n := node(arrow.PrimitiveTypes.Int8, int64(8*len(bitmap)), bitmap, nil)
	for name, do := range map[string]func(p *Pace) error{
		"Parts": func(p *Pace) error {
			sum := 0
			err := p.Parts(3<<20, func(from, to int) error { sum += to - from; return nil })
			assert.Equal(t, err == nil, sum == 3<<20)
			return err
		},
		"Nulls": func(p *Pace) error { _, err := p.Nulls(n); return err },
		"ValidUTF8": func(p *Pace) error {
			valid, err := p.ValidUTF8(long)
			assert.Equal(t, err == nil, valid)
			return err
		},
	} {
		for _, p := range []*Pace{nil, {}, {Ctx: t.Context()}} {
			assert.NoError(t, do(p), name)
		}
		assert.EqualError(t, do(&Pace{Ctx: done, Op: "read"}), "cdevice: read: context canceled", name)
	}
	for _, bad := range [][]byte{append(long[:len(long):len(long)], 0xff), append([]byte{0xff}, long...), bytes.Repeat([]byte{0x80}, 2*atOnce)} {
		valid, err := (&Pace{Ctx: t.Context()}).ValidUTF8(bad)
		assert.NoError(t, err)
		assert.False(t, valid)
	}
	failed := errors.New("failed")
	assert.Equal(t, failed, (*Pace)(nil).Parts(1, func(int, int) error { return failed }))
}

// Panics of arrow-go about data that does not hold together are errors.
func TestArrowGo(t *testing.T) {
	arr := array.NewNull(2)
	s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.Null}}, nil)
	metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
	rec, err := NewRecordBatch(s, []arrow.Array{arr}, 2, metadata)
	require.NoError(t, err)
	assert.Equal(t, metadata, rec.(arrow.RecordBatchWithMetadata).Metadata())
	rec.Release()
	_, err = NewRecordBatch(s, []arrow.Array{arr}, 3, arrow.Metadata{})
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.NoError(t, CheckColumn(s.Field(0), arr))
	assert.ErrorContains(t, CheckColumn(arrow.Field{Type: arrow.PrimitiveTypes.Int8}, arr), "type = null, want int8")
	ReleaseAll([]arrow.Array{arr})
}
