package validate

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

func address[T any](pins *runtime.Pinner, s []T) uintptr {
	if len(s) == 0 {
		return 0
	}
	pins.Pin(&s[0])
	return uintptr(unsafe.Pointer(&s[0]))
}

// texts is an array of text in memory: data, and where its rows are.
type texts struct {
	data  []byte
	spans [][2]int // of the rows, in order, without gaps between them
	valid []bool   // nil where all are
}

// utf8 reports whether all rows from offset on that are not null are UTF-8.
func (x texts) utf8(offset int) bool {
	for i, span := range x.spans {
		if i >= offset && (x.valid == nil || x.valid[i]) && !utf8.Valid(x.data[span[0]:span[1]]) {
			return false
		}
	}
	return true
}

// check validates the rows from offset on, as an array of offsets and as one of views.
func (x texts) check(t *testing.T, offset int) (asOffsets, asViews error) {
	t.Helper()
	pins := new(runtime.Pinner)
	defer pins.Unpin()
	var bitmap []byte
	if x.valid != nil {
		bitmap = make([]byte, len(x.valid)/8+1)
		for i, valid := range x.valid {
			if valid {
				bitmap[i/8] |= 1 << (i % 8)
			}
		}
	}
	offsets := []int32{int32(x.spans[0][0])}
	views := make([]arrow.ViewHeader, len(x.spans))
	for i, span := range x.spans {
		offsets = append(offsets, int32(span[1]))
		value := x.data[span[0]:span[1]]
		views[i].SetBytes(value)
		if !views[i].IsInline() {
			views[i].SetIndexOffset(0, int32(span[0]))
		}
	}
	sizes := []int64{int64(len(x.data))}
	node := func(dt arrow.DataType, buffers ...uintptr) *tree.Node {
		_, l := layout.Of(dt)
		n := &tree.Node{Type: dt, Layout: l, Length: int64(len(x.spans) - offset), Offset: int64(offset), Nulls: tree.UnknownNulls}
		n.Buffers = append([]uintptr{address(pins, bitmap)}, buffers...)
		return n
	}
	v := newValidator(context.Background())
	asOffsets = v.contents(node(arrow.BinaryTypes.String, address(pins, offsets), address(pins, x.data)))
	asViews = v.contents(node(arrow.BinaryTypes.StringView, address(pins, views), address(pins, x.data), address(pins, sizes)))
	return asOffsets, asViews
}

func rowsOf(rows ...string) (x texts) {
	for _, row := range rows {
		x.spans = append(x.spans, [2]int{len(x.data), len(x.data) + len(row)})
		x.data = append(x.data, row...)
	}
	return x
}

func TestTextAtItsEdges(t *testing.T) {
	const long = "more than twelve bytes "
	tail := rowsOf("plain", long, "rest")
	tail.data = append(tail.data, 0xff, 0xfe)
	front := rowsOf(long+"\xff", "\xff", long, "text", long+"ä")
	null := rowsOf("a", "\xff", long, long+"\xc3", "\xa4", long+"é")
	null.valid = []bool{true, false, true, false, false, true}
	for name, row := range map[string]struct {
		texts
		offset int
		ok     bool
	}{
		"ASCII":                             {rowsOf("a", "", long), 0, true},
		"an empty last row":                 {rowsOf("ä", long+"ä", "", ""), 0, true},
		"empty rows only":                   {rowsOf("", "", ""), 0, true},
		"characters of all sizes":           {rowsOf("ä", "€", "😀", long+"ä€😀", ""), 0, true},
		"a character cut by an offset":      {rowsOf("x\xc3", "\xa4y"), 0, false},
		"a character cut between long rows": {rowsOf(long+"\xc3", "\xa4"+long), 0, false},
		"the last character cut":            {rowsOf("x", long+"\xe2\x82"), 0, false},
		"a surrogate":                       {rowsOf("x\xed\xa0\x80", long), 0, false},
		"a surrogate in a long row":         {rowsOf("x", long+"\xed\xbf\xbf"), 0, false},
		"overlong":                          {rowsOf("\xc0\xaf"), 0, false},
		"overlong in a long row":            {rowsOf(long + "\xe0\x80\xaf"), 0, false},
		"beyond the last character":         {rowsOf(long + "\xf4\x90\x80\x80"), 0, false},
		"bytes behind the last row":         {tail, 0, true},
		"bytes before the first row":        {front, 2, true},
		"with these":                        {front, 1, false},
		"under nulls":                       {null, 0, true},
		"a slice with nulls":                {null, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			asOffsets, asViews := row.check(t, row.offset)
			assert.Equal(t, row.ok, row.utf8(row.offset), "the test")
			assert.Equal(t, row.ok, asOffsets == nil, "offsets: %v", asOffsets)
			assert.Equal(t, row.ok, asViews == nil, "views: %v", asViews)
		})
	}
}

// Random rows over random text, with nulls and slices, against each row by itself.
func TestTextOfRandomRows(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 3))
	pieces := []string{"x", "ä", "€", "😀", "some plain text ", "ab", "\x80", "\xff", "\xe2\x82"}
	counts := map[bool]int{}
	for round := range 4000 {
		in := 6 + r.IntN(2)*r.IntN(4)
		if in == 6 && r.IntN(2) == 0 {
			in = 1
		}
		var x texts
		for range 1 + r.IntN(40) {
			x.data = append(x.data, pieces[r.IntN(in)]...)
		}
		at := 0
		for at < len(x.data) {
			end := min(len(x.data), at+r.IntN(30))
			for r.IntN(40) > 0 && end < len(x.data) && !utf8.RuneStart(x.data[end]) {
				end++
			}
			x.spans = append(x.spans, [2]int{at, end})
			at = end
		}
		if r.IntN(3) == 0 {
			for range x.spans {
				x.valid = append(x.valid, r.IntN(4) > 0)
			}
		}
		offset := r.IntN(min(3, len(x.spans)))
		want := x.utf8(offset)
		counts[want]++
		asOffsets, asViews := x.check(t, offset)
		assert.Equal(t, want, asOffsets == nil, "round %d: %v", round, asOffsets)
		assert.Equal(t, want, asViews == nil, "round %d: %v", round, asViews)
		if t.Failed() {
			return
		}
	}
	assert.Greater(t, counts[true], 1000)
	assert.Greater(t, counts[false], 500)
}

// Bytes behind a short value are found in the check of all views, and named by that of each.
func TestPaddingOfManyViews(t *testing.T) {
	for size := range inlineSize {
		for at := 4 + size; at < layout.ViewSize; at++ {
			views := make([]arrow.ViewHeader, 3)
			for i := range views {
				views[i].SetBytes(make([]byte, size))
			}
			(*rawView)(unsafe.Pointer(&views[1]))[at] = 1
			ok, err := newValidator(context.Background()).allViews(&tree.Node{}, views, nil, true)
			assert.NoError(t, err)
			assert.False(t, ok, "a value of %d bytes, byte %d", size, at)
		}
	}
}
