package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/endian"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Arguments that are not arrow-go's own: a program's record batches, arrays, devices and types, and
// misuse.

// otherSchema is a record batch that claims to have another schema.
type otherSchema struct {
	arrow.RecordBatch
	schema *arrow.Schema
}

func (o otherSchema) Schema() *arrow.Schema { return o.schema }

func TestWrapRefusesASchemaThatIsNotTheColumns(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	i, s := rec.Schema().Field(0), rec.Schema().Field(1)
	foreign := endian.BigEndian
	if endian.NativeEndian == endian.BigEndian {
		foreign = endian.LittleEndian
	}
	for _, row := range []struct {
		name   string
		schema *arrow.Schema
		want   string
		is     error
	}{
		{"none", nil, "cdevice: wrap: schema = nil, want a schema", arrow.ErrInvalid},
		{"too few fields", arrow.NewSchema([]arrow.Field{i}, nil), "cdevice: wrap: schema has 1 field for 2 columns", arrow.ErrInvalid},
		{"too many fields", arrow.NewSchema([]arrow.Field{i, s, s}, nil), "schema has 3 fields for 2 columns", arrow.ErrInvalid},
		{"other types", arrow.NewSchema([]arrow.Field{i, i}, nil), "cdevice: wrap: column[1].type = utf8, want int32", arrow.ErrInvalid},
		{"another byte order", rec.Schema().WithEndianness(foreign), "cdevice: wrap: schema.endianness", arrow.ErrNotImplemented},
	} {
		_, err := cdevice.WrapRecordBatch(otherSchema{rec, row.schema}, device.CPUDevice())
		assert.ErrorContains(t, err, row.want, row.name)
		assert.ErrorIs(t, err, row.is, row.name)
	}
	moments := oneColumn(t, fromJSON(t, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"}, `[1]`))
	equal := arrow.NewSchema([]arrow.Field{{Name: "x", Type: &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"}}}, nil)
	b, err := cdevice.WrapRecordBatch(otherSchema{moments, equal}, device.CPUDevice())
	require.NoError(t, err, "types need not be the same objects")
	b.Release()
}

// moodyArray panics at the n-th call of Data.
type moodyArray struct {
	arrow.Array
	calls *int
	n     int
}

func (m moodyArray) Data() arrow.ArrayData {
	if *m.calls++; *m.calls == m.n {
		panic("not today")
	}
	return m.Array.Data()
}

type moodyBatch struct {
	arrow.RecordBatch
	columns []arrow.Array
}

func (m moodyBatch) Columns() []arrow.Array { return m.columns }

func TestPanicOfACallersType(t *testing.T) {
	checkLeaks(t)
	rec := oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`))
	views := oneColumn(t, fromJSON(t, arrow.BinaryTypes.StringView, `["a"]`)) // which takes two calls
	for n, rec := range map[int]arrow.RecordBatch{1: rec, 2: views} {
		moody := moodyArray{rec.Column(0), new(int), n}
		_, err := cdevice.WrapRecordBatch(moodyBatch{rec, []arrow.Array{moody}}, device.CPUDevice())
		assert.ErrorContains(t, err, "panic: not today", n)
	}
	_, err := cdevice.WrapArray(moodyArray{rec.Column(0), new(int), 1}, device.CPUDevice())
	assert.ErrorContains(t, err, "panic: not today")
}

func TestColumnOutOfRangePanicsAndLeaksNothing(t *testing.T) {
	checkLeaks(t)
	b := wrap(t, twoColumns(t))
	before := cdevice.ReadStats()
	assert.Panics(t, func() { b.Column(2) })
	assert.Panics(t, func() { b.Column(-1) })
	assert.Equal(t, before, cdevice.ReadStats())
}

// A device that Wrap is given need not be registered.
func TestWrappedBatchKeepsItsDevice(t *testing.T) {
	checkLeaks(t)
	dev := unregistered{device.CPUDevice()}
	b := kept(cdevice.WrapRecordBatch(twoColumns(t), dev))(t)
	got, err := b.Device()
	require.NoError(t, err)
	assert.Equal(t, dev, got)
	part := kept(b.Slice(1, 2))(t)
	view, err := part.HostView(context.Background())
	require.NoError(t, err, "its memory is host readable, although its type does not say so")
	view.Release()
	var out cdevice.CArrowDeviceArray
	require.NoError(t, exportMade(&out, nil)(part.AsCPU(context.Background())))
	assert.EqualValues(t, device.CPU, out.DeviceType)
	cdevice.ReleaseStruct(&out)
}

type unregistered struct{ device.Device }

func (unregistered) ID() device.ID { return device.ID{Type: device.OneAPI, Ordinal: 4} }

// Types that arrow-go can spell but not use are refused, and the struct released.
func TestImportRefusesTypesThatCannotBe(t *testing.T) {
	checkLeaks(t)
	deep, doubled := arrow.DataType(arrow.PrimitiveTypes.Int8), arrow.DataType(arrow.PrimitiveTypes.Int8)
	for range 70 {
		deep = arrow.ListOf(deep)
	}
	for range 30 { // a billion arrays
		doubled = arrow.StructOf(arrow.Field{Name: "a", Type: doubled}, arrow.Field{Name: "b", Type: doubled})
	}
	itself := &tagged{tag: "itself"}
	itself.Storage = itself
	for name, dt := range map[string]arrow.DataType{"zero map": &arrow.MapType{}, "nested by 70": deep, "doubled": doubled, "itself": itself} {
		out := garbageArray()
		require.NoError(t, exportMade(out, nil)(cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int8, `[1]`), device.CPUDevice())))
		_, err := cdevice.ImportArrayWithType(out, dt)
		assert.ErrorContains(t, err, "cdevice: import: schema.type", name)
		assert.Zero(t, out.Array.Release, name)
	}
	in := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(wrap(t, twoColumns(t)), in, nil))
	schema := arrow.NewSchema([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int32}, {Name: "m", Type: &arrow.MapType{}}}, nil)
	_, err := cdevice.ImportRecordBatchWithSchema(in, schema)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "cdevice: import: schema.field[1].type: invalid: the data type panics")
}

func TestWrapRefusesRunsWithoutValues(t *testing.T) {
	checkLeaks(t)
	whole := fromJSON(t, arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32), `[1,1,2,3]`)
	ends, values := whole.Data().Children()[0], whole.Data().Children()[1]
	short := array.NewSliceData(values, 0, 1)
	defer short.Release()
	data := array.NewData(whole.DataType(), 4, []*memory.Buffer{nil}, []arrow.ArrayData{ends, short}, 0, 0)
	defer data.Release()
	_, err := cdevice.WrapArray(dataOnly{whole, data}, device.CPUDevice())
	assert.ErrorContains(t, err, "cdevice: wrap: array.children[1].length = 1, want at least 3")
}

// importTree imports an array that a C program exports; it is released at the end.
func importTree(t *testing.T, n cpeer.Node, dt arrow.DataType) *cdevice.Array {
	t.Helper()
	tree := cpeer.NewTree(n)
	t.Cleanup(tree.Free)
	in := new(cdevice.CArrowDeviceArray)
	tree.Export(abi.As[abi.ArrowDeviceArray](in))
	a, err := cdevice.ImportArrayWithType(in, dt)
	require.NoError(t, err)
	t.Cleanup(a.Release)
	return a
}

// Pinned memory that is exported as CPU memory has an address for every buffer.
func TestForHostOfPinnedMemoryHasNoNullOffsets(t *testing.T) {
	checkLeaks(t)
	tree := cpeer.NewTree(cpeer.Node{Buffers: []uintptr{0, 0, 0}})
	t.Cleanup(tree.Free)
	in := new(cdevice.CArrowDeviceArray)
	tree.Export(abi.As[abi.ArrowDeviceArray](in))
	in.DeviceType, in.DeviceID = int32(pinned.Type), pinned.Ordinal
	a := kept(cdevice.ImportArrayWithType(in, arrow.BinaryTypes.String))(t)
	var out cdevice.CArrowDeviceArray
	require.NoError(t, exportMade(&out, nil)(a.AsCPU(context.Background())))
	defer cdevice.ReleaseStruct(&out)
	buffers := abi.Slice[uintptr](out.Array.Buffers, 3)
	assert.Zero(t, buffers[0])
	assert.NotZero(t, buffers[1])
	assert.NotZero(t, buffers[2])
}

func TestSchemasAndFieldsAlone(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	c := garbageSchema()
	require.NoError(t, cdevice.ExportSchema(rec.Schema(), c))
	schema, err := cdevice.ImportSchema(c)
	require.NoError(t, err)
	assert.True(t, rec.Schema().Equal(schema))
	require.NoError(t, cdevice.ExportField(rec.Schema().Field(1), c))
	field, err := cdevice.ImportField(cdevice.SchemaFromPtr(addressOf(c)))
	require.NoError(t, err)
	assert.True(t, rec.Schema().Field(1).Equal(field))
	_, err = cdevice.ImportField(c)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
}

// The offsets buffer of an empty array may have no bytes, wherever it claims to be.
func TestViewOfAnEmptyArray(t *testing.T) {
	const nowhere = 0x8000 // no process has memory there
	for _, dt := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString} {
		a := importTree(t, cpeer.Node{Buffers: []uintptr{nowhere, nowhere, nowhere}}, dt)
		view, err := a.HostView(context.Background())
		require.NoError(t, err)
		for _, buf := range view.Data().Buffers() {
			for _, b := range buf.Bytes() {
				assert.Zero(t, b)
			}
		}
		view.Release()
	}
}
