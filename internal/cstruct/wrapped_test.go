package cstruct

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Array data that Accept accepts is accepted by DataParser, and is exported as its nodes are.
func TestAcceptedDataIsExportedAsItsNodes(t *testing.T) {
	accepted := acceptedOf(t, rand.New(rand.NewPCG(3, 4)), 40_000, 100, compareData)
	for _, dt := range types {
		p, err := layout.PlanOf(arrow.NewSchema([]arrow.Field{{Name: "a", Type: dt}}, nil))
		require.NoError(t, err)
		if p.Simple {
			assert.GreaterOrEqual(t, accepted[dt.String()], 5, "%s", dt)
		}
	}
}

func FuzzAcceptedDataIsExportedAsItsNodes(f *testing.F) {
	fuzz(f, compareData)
}

// column is an array that is nothing but its data.
type column struct {
	arrow.Array
	dt   arrow.DataType
	data arrow.ArrayData
}

func (c column) Data() arrow.ArrayData    { return c.data }
func (c column) DataType() arrow.DataType { return c.dt }

// record is a record batch of columns.
type record struct {
	arrow.RecordBatch
	schema  *arrow.Schema
	columns []arrow.Array
	rows    int64
	refs    int
}

func (r *record) Schema() *arrow.Schema  { return r.schema }
func (r *record) Columns() []arrow.Array { return r.columns }
func (r *record) NumRows() int64         { return r.rows }
func (r *record) Retain()                { r.refs++ }
func (r *record) Release()               { r.refs-- }

// compareData makes the data of a column, perhaps wrong, and exports it on both ways. It returns its type, and whether
// Accept accepts it.
func compareData(t *testing.T, c choices) (name string, accepted bool) {
	t.Helper()
	m := dataMaker{choices: c}
	dt := m.dataType(0)
	if m.below(2) == 1 {
		dt = m.dataType(2)
	}
	m.changes = m.below(3)
	rows := int64(m.below(4))
	data := m.data(dt, rows)
	plan, err := layout.PlanOf(arrow.NewSchema([]arrow.Field{{Name: "a", Type: dt}}, nil))
	require.NoError(t, err)
	mem := tree.Own(new(releases))
	defer mem.Release()
	w := &Wrapped{Plan: plan, Mem: mem}
	a := column{dt: dt, data: data}
	if m.change() {
		a.dt = arrow.FixedWidthTypes.Boolean
	}
	assert.False(t, w.Accept([]arrow.Array{a, a}, rows, mem.Pinner()), "two columns for one field")
	var once abi.ArrowArray
	rec := &record{schema: arrow.NewSchema([]arrow.Field{{Name: "a", Type: dt}}, nil), columns: []arrow.Array{a}, rows: rows}
	trees := bridge.Exports()
	exported := ExportArrowRecordBatch(rec, &once)
	if !w.Accept([]arrow.Array{a}, rows, mem.Pinner()) {
		assert.False(t, exported)
		assert.Zero(t, rec.refs)
		assert.Equal(t, abi.ArrowArray{}, once)
		assert.Equal(t, trees, bridge.Exports())
		return dt.String(), false
	}
	assert.True(t, exported)
	assert.True(t, layout.Identical(a.dt, dt), "Accept accepts a column of another type")
	assert.True(t, counted(data), "Accept accepts data whose nulls are not counted")
	var p DataParser
	if !assert.NoError(t, p.Measure(data), "Accept accepts %v", data) {
		return dt.String(), true
	}
	p.Start(mem)
	nodes := p.Take(1)
	if !assert.NoError(t, p.Node(&nodes[0], data), "Accept accepts %v", data) {
		return dt.String(), true
	}
	assert.True(t, sameNodes(nodes, w.MakeNodes()))
	assert.Equal(t, rows, nodes[0].Length)
	var fast, slow abi.ArrowArray
	root := tree.Node{Layout: &layout.All[layout.Struct], Length: rows, Children: nodes}
	require.NoError(t, Export("test", &Tree{Mem: mem.Retain(), Root: root, Wrapped: w}, &fast, nil, nil))
	require.NoError(t, Export("test", &Tree{Mem: mem.Retain(), Root: root}, &slow, nil, nil))
	assert.True(t, sameStructs(&fast, &slow), "Accept makes another struct of %v than DataParser", data)
	assert.True(t, sameStructs(&once, &slow), "ExportArrowRecordBatch makes another struct of %v than DataParser", data)
	assert.Equal(t, 1, rec.refs)
	bridge.CallArrayRelease(&once)
	assert.Zero(t, rec.refs)
	bridge.CallArrayRelease(&fast)
	bridge.CallArrayRelease(&slow)
	return dt.String(), true
}

// counted reports whether the null counts are known. arrow-go would write others while an export reads them.
func counted(d arrow.ArrayData) bool {
	dictionary := dataOf(d.Dictionary())
	return d.NullN() >= 0 && (dictionary == nil || counted(dictionary)) && !slices.ContainsFunc(d.Children(), func(c arrow.ArrayData) bool { return !counted(c) })
}

func sameStructs(a, b *abi.ArrowArray) bool {
	if a.Length != b.Length || a.Offset != b.Offset || a.NullCount != b.NullCount || a.NBuffers != b.NBuffers || a.NChildren != b.NChildren ||
		(a.Dictionary == 0) != (b.Dictionary == 0) || a.Release != b.Release ||
		!slices.Equal(abi.Slice[uintptr](a.Buffers, int(a.NBuffers)), abi.Slice[uintptr](b.Buffers, int(b.NBuffers))) {
		return false
	}
	if a.Dictionary != 0 {
		return sameStructs(abi.At[abi.ArrowArray](a.Dictionary), abi.At[abi.ArrowArray](b.Dictionary))
	}
	return slices.EqualFunc(abi.Slice[uintptr](a.Children, int(a.NChildren)), abi.Slice[uintptr](b.Children, int(b.NChildren)), func(x, y uintptr) bool {
		return sameStructs(abi.At[abi.ArrowArray](x), abi.At[abi.ArrowArray](y))
	})
}

// dataMaker makes array data that is as its type demands, or differs from it in some of the arrays.
type dataMaker struct {
	choices
	changes int // that are still to be made
}

// change reports whether to make one of the changes here.
func (m *dataMaker) change() bool {
	if m.changes > 0 && m.below(8) == 1 {
		m.changes--
		return true
	}
	return false
}

// number returns n or, as a change, another number.
func (m *dataMaker) number(n int64) int {
	if !m.change() {
		return int(n)
	}
	all := []int64{n + 1, n - 1, n - 1, 0, -1, -2, 1 << 31, maxElements - 1, maxElements, 1 << 62}
	return int(all[m.below(len(all))])
}

// bytes returns a buffer of at least so many bytes: zeros, with the last ones as given, if there are.
func (m *dataMaker) bytes(size int64, last ...byte) *memory.Buffer {
	if m.change() {
		if m.below(2) == 1 {
			return nil
		}
		size--
	}
	if size <= 0 {
		return memory.NewBufferBytes(nil)
	}
	b := make([]byte, size, size+int64(m.below(2)))
	copy(b[max(len(b)-len(last), 0):], last)
	return memory.NewBufferBytes(b)
}

// data returns data of length elements.
func (m *dataMaker) data(dt arrow.DataType, length int64) arrow.ArrayData {
	if m.change() {
		switch m.below(3) {
		case 0:
			return nil
		case 1:
			dt = arrow.FixedWidthTypes.Boolean
		}
	}
	st, l := layout.Of(dt)
	offset := int64(m.below(3))
	end := offset + length
	nulls := int64(max(m.below(5)-1, 0))
	if m.change() {
		nulls = -1
	}
	if !l.Validity || length == 0 {
		nulls = 0
	}
	sizeOfText := int64(0)
	var buffers []*memory.Buffer
	if !l.Validity {
		buffers = append(buffers, nil)
	}
	for i := range l.Buffers {
		size := layout.LeastSize(st, l, i, end)
		switch {
		case l.Kind == layout.View && i == 2:
			continue // the sizes
		case i == 0 && l.Validity && nulls <= 0 && m.below(2) == 1:
			buffers = append(buffers, nil)
		case i == 1 && l.Kind == layout.Binary32:
			sizeOfText = int64(m.below(3))
			buffers = append(buffers, m.bytes(size, binary.NativeEndian.AppendUint32(nil, uint32(m.number(sizeOfText)))...))
		case i == 1 && l.Kind == layout.Binary64:
			sizeOfText = int64(m.below(3))
			buffers = append(buffers, m.bytes(size, binary.NativeEndian.AppendUint64(nil, uint64(m.number(sizeOfText)))...))
		case i == 2 && (l.Kind == layout.Binary32 || l.Kind == layout.Binary64):
			buffers = append(buffers, m.bytes(sizeOfText))
		default:
			buffers = append(buffers, m.bytes(size))
		}
	}
	if m.change() {
		buffers = append(buffers, nil)[:len(buffers)+1-2*m.below(2)]
	}
	var children []arrow.ArrayData
	var dictionary *array.Data
	if l.Kind == layout.Dictionary {
		dictionary, _ = m.data(layout.ChildType(st, 0), int64(m.below(3))).(*array.Data)
		if m.change() {
			dictionary = nil
		}
	} else {
		least, _ := layout.ChildLength(st, end)
		if least > 100 {
			length, least = 0, 0
		}
		for i := range l.ChildCount(st) {
			children = append(children, m.data(layout.ChildType(st, i), least+int64(m.below(2))))
		}
		if m.change() {
			children = append(children, m.data(arrow.Null, 0))[m.below(2):]
		}
	}
	if dictionary != nil {
		return array.NewDataWithDictionary(dt, m.number(length), buffers, m.number(nulls), m.number(offset), dictionary)
	}
	return array.NewData(dt, m.number(length), buffers, children, m.number(nulls), m.number(offset))
}
