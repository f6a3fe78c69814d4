package cdevice_test

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// rawBatch is a record batch of one column of array data as it is: arrow-go checks little of it, or
// refuses it with a panic.
type rawBatch struct {
	arrow.RecordBatch
	field arrow.DataType
	raw   rawArray
	rows  int64
}

type rawArray struct {
	arrow.Array
	dt   arrow.DataType
	data arrow.ArrayData
}

func (r rawBatch) Columns() []arrow.Array { return []arrow.Array{r.raw} }
func (r rawBatch) NumRows() int64         { return r.rows }
func (r rawBatch) Schema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "c", Type: r.field, Nullable: true}}, nil)
}
func (r rawArray) Data() arrow.ArrayData    { return r.data }
func (r rawArray) DataType() arrow.DataType { return r.dt }

// rawData is the data of an array of two elements, unless a test changes it.
type rawData struct {
	dt                    arrow.DataType
	length, nulls, offset int
	buffers               []*memory.Buffer
	children              []*array.Data
	dictionary            *array.Data
}

func (r rawData) make() *array.Data {
	var children []arrow.ArrayData
	for _, c := range r.children {
		if c == nil {
			children = append(children, nil)
			continue
		}
		children = append(children, c)
	}
	d := array.NewData(r.dt, r.length, r.buffers, children, r.nulls, r.offset)
	if r.dictionary != nil {
		d.SetDictionary(r.dictionary)
	}
	return d
}

func zeroBytes(n int) *memory.Buffer { return memory.NewBufferBytes(make([]byte, n)) }

// What exports of array data do not look at any more is refused when the record batch is wrapped.
func TestWrapRefusesArrayDataThatIsWrong(t *testing.T) {
	int64s, text := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	structs := arrow.StructOf(arrow.Field{Name: "a", Type: int64s})
	words := &arrow.DictionaryType{IndexType: int64s, ValueType: int64s}
	huge := arrow.FixedSizeListOf(math.MaxInt32, int64s)
	numbers := func(length int) *array.Data {
		return rawData{dt: int64s, length: length, buffers: []*memory.Buffer{nil, zeroBytes(8 * max(length, 0))}}.make()
	}
	wrong := func(change func(*rawData)) *array.Data {
		d := rawData{dt: int64s, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}}
		change(&d)
		return d.make()
	}
	for _, row := range []struct {
		name string
		data rawData
		want string // in the error; there is none if it is empty
	}{
		{"nothing wrong", rawData{dt: int64s, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}}, ""},
		{"length", rawData{dt: int64s, length: math.MaxInt64, offset: 1, buffers: []*memory.Buffer{nil, zeroBytes(16)}}, "offset"},
		{"offset", rawData{dt: int64s, length: 2, offset: -1, buffers: []*memory.Buffer{nil, zeroBytes(16)}}, "offset"},
		{"length and offset", rawData{dt: huge, length: math.MaxUint32, offset: math.MaxUint32, buffers: []*memory.Buffer{nil}, children: []*array.Data{numbers(2)}}, "length"},
		{"nulls", rawData{dt: int64s, length: 2, nulls: 3, buffers: []*memory.Buffer{zeroBytes(1), zeroBytes(16)}}, "null_count"},
		{"nulls without a bitmap", rawData{dt: int64s, length: 2, nulls: 1, buffers: []*memory.Buffer{nil, zeroBytes(16)}}, ""},
		{"few buffers", rawData{dt: int64s, length: 2, buffers: []*memory.Buffer{nil}}, "buffers"},
		{"many buffers", rawData{dt: int64s, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16), nil}}, "buffers"},
		{"short bitmap", rawData{dt: int64s, length: 9, nulls: 1, buffers: []*memory.Buffer{zeroBytes(1), zeroBytes(72)}}, "buffers[0]"},
		{"short bitmap without nulls", rawData{dt: int64s, length: 9, buffers: []*memory.Buffer{zeroBytes(1), zeroBytes(72)}}, "buffers[0]"},
		{"short bitmap at an offset", rawData{dt: int64s, length: 1, nulls: 1, offset: 8, buffers: []*memory.Buffer{zeroBytes(1), zeroBytes(72)}}, "buffers[0]"},
		{"short bitmap of no elements", rawData{dt: int64s, offset: 9, buffers: []*memory.Buffer{zeroBytes(1), zeroBytes(72)}}, ""},
		{"short values", rawData{dt: int64s, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(15)}}, "buffers[1]"},
		{"short values at an offset", rawData{dt: int64s, length: 1, offset: 1, buffers: []*memory.Buffer{nil, zeroBytes(15)}}, "buffers[1]"},
		{"short bits", rawData{dt: arrow.FixedWidthTypes.Boolean, length: 9, buffers: []*memory.Buffer{nil, zeroBytes(1)}}, "buffers[1]"},
		{"huge values", rawData{dt: &arrow.FixedSizeBinaryType{ByteWidth: 1 << 29}, length: math.MaxUint32, buffers: []*memory.Buffer{nil, zeroBytes(16)}}, "buffers[1]"},
		{"short offsets", rawData{dt: text, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(11), nil}}, "buffers[1]"},
		{"no values of no elements", rawData{dt: int64s, offset: 8, buffers: []*memory.Buffer{nil, nil}}, ""},
		{"a child of numbers", rawData{dt: int64s, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}, children: []*array.Data{numbers(2)}}, "children"},
		{"no child", rawData{dt: structs, length: 2, buffers: []*memory.Buffer{nil}}, "children"},
		{"nil child", rawData{dt: structs, length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{nil}}, "children[0].data"},
		{"child of negative length", rawData{dt: structs, buffers: []*memory.Buffer{nil}, children: []*array.Data{wrong(func(d *rawData) { d.length = -1 })}}, "offset"},
		{"two children", rawData{dt: structs, length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{numbers(2), numbers(2)}}, "children"},
		{"short child", rawData{dt: structs, length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{numbers(1)}}, "children[0].length"},
		{"short child at an offset", rawData{dt: structs, length: 1, offset: 1, buffers: []*memory.Buffer{nil}, children: []*array.Data{numbers(1)}}, "children[0].length"},
		{"short child of a fixed list", rawData{dt: arrow.FixedSizeListOf(3, int64s), length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{numbers(5)}}, "children[0].length"},
		{"wrong child", rawData{dt: structs, length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{wrong(func(d *rawData) { d.buffers[1] = nil })}}, "children[0].buffers[1]"},
		{"no dictionary", rawData{dt: words, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}}, "dictionary"},
		{"wrong dictionary", rawData{dt: words, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}, dictionary: wrong(func(d *rawData) { d.length = -1 })}, "dictionary.offset"},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkLeaks(t)
			data := row.data.make()
			defer data.Release()
			rec := rawBatch{twoColumns(t), row.data.dt, rawArray{dt: row.data.dt, data: data}, int64(row.data.length)}
			b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			if row.want == "" {
				require.NoError(t, err)
				column := exportedColumn(t, b)
				checkBitmaps(t, column, data)
				if row.data.length == 0 {
					assert.Zero(t, column.Offset)
				}
				withNodes, err := b.Select(0)
				require.NoError(t, err)
				assert.Equal(t, column, exportedColumn(t, withNodes), "with nodes")
				withNodes.Release()
				b.Release()
				return
			}
			require.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, row.want)
			_, err = cdevice.WrapArray(dataOnly{twoColumns(t).Column(0), data}, device.CPUDevice())
			require.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, "cdevice: wrap: array")
			assert.ErrorContains(t, err, row.want)
		})
	}
}

// The types of the schema, of the column and of its data are the same.
func TestWrapRefusesAColumnOfOtherData(t *testing.T) {
	checkLeaks(t)
	int64s, floats := arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64
	for _, row := range [][3]arrow.DataType{{floats, int64s, int64s}, {int64s, floats, int64s}, {int64s, int64s, floats}} {
		data := rawData{dt: row[2], length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}}.make()
		b, err := cdevice.WrapRecordBatch(rawBatch{twoColumns(t), row[0], rawArray{dt: row[1], data: data}, 2}, device.CPUDevice())
		assert.ErrorIs(t, err, arrow.ErrInvalid, row)
		if err == nil {
			b.Release()
		}
		data.Release()
	}
	for _, dt := range []arrow.DataType{nil, &arrow.MapType{}} { // which panics
		data := rawData{dt: dt, buffers: []*memory.Buffer{nil, nil}}.make()
		assert.ErrorIs(t, second(cdevice.WrapArray(dataOnly{twoColumns(t).Column(0), data}, device.CPUDevice())), arrow.ErrInvalid)
		data.Release()
	}
}

// Data that a program changes after it was wrapped, which arrow-go forbids, is exported within the
// memory of the export.
func TestDataThatIsResetAfterItWasWrapped(t *testing.T) {
	int64s := arrow.PrimitiveTypes.Int64
	below := rawData{dt: int64s, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}}.make()
	for _, whole := range []rawData{
		{dt: int64s, length: 2, nulls: 1, buffers: []*memory.Buffer{zeroBytes(1), zeroBytes(16)}},
		{dt: arrow.StructOf(arrow.Field{Name: "a", Type: int64s}), length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{below}},
		{dt: &arrow.DictionaryType{IndexType: int64s, ValueType: int64s}, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(16)}, dictionary: below},
	} {
		t.Run(whole.dt.String(), func(t *testing.T) {
			checkLeaks(t)
			data := whole.make()
			defer data.Release()
			b := kept(cdevice.WrapRecordBatch(rawBatch{twoColumns(t), whole.dt, rawArray{dt: whole.dt, data: data}, 2}, device.CPUDevice()))(t)
			before := exportedColumn(t, b)
			held := garbageArray() // so that the next export fills a block of its own
			require.NoError(t, cdevice.ExportRecordBatch(b, held, nil))
			defer cdevice.ReleaseStruct(held)
			data.Reset(whole.dt, 0, nil, nil, 1, 3)
			after := exportedColumn(t, b)
			assert.Equal(t, exportedArray{Buffers: []uintptr{0, bridge.Zeros}[:len(before.Buffers)], Below: after.Below}, after)
			assert.Len(t, after.Below, len(before.Below))
		})
	}
}

// An export from array data after one from nodes does not take the memory of the latter for its own.
func TestExportsFromDataAndFromNodesInTurns(t *testing.T) {
	rec, _ := wide(t, 10)
	b := wrap(t, rec)
	whole := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	before := exportedColumn(t, b)
	for more := 1; more < 4; more++ {
		with, err := b.Select(append(whole, make([]int, more)...)...)
		require.NoError(t, err)
		exportedColumn(t, with)
		with.Release()
		out := garbageArray()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
		for i, addr := range children(&abi.As[abi.ArrowDeviceArray](out).Array) {
			assert.Equal(t, before, readExported(abi.At[abi.ArrowArray](addr), rec.Column(i).DataType()), "column %d after %d more", i, more)
		}
		cdevice.ReleaseStruct(out)
	}
}

// arrow-go makes the values of a dictionary, and checks them, when a program asks for them. Wrapping
// does not wait for that: what comes next copies the bytes up to the last offset.
func TestDictionaryOfTextsThatEndBehindTheirBytes(t *testing.T) {
	ends32 := func(end int32) *memory.Buffer {
		return memory.NewBufferBytes(binary.NativeEndian.AppendUint32(make([]byte, 8), uint32(end)))
	}
	ends64 := func(end int64) *memory.Buffer {
		return memory.NewBufferBytes(binary.NativeEndian.AppendUint64(make([]byte, 16), uint64(end)))
	}
	texts := func(dt arrow.DataType, offsets *memory.Buffer) rawData {
		return rawData{dt: dt, length: 2, buffers: []*memory.Buffer{nil, offsets, zeroBytes(5)}}
	}
	within := func(values rawData) rawData {
		return rawData{dt: arrow.FixedSizeListOf(1, values.dt), length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{values.make()}}
	}
	b := arrow.BinaryTypes
	long := texts(b.String, ends32(6))
	long.length, long.offset = 1, 1
	for name, row := range map[string]struct {
		values rawData
		want   string // after "dictionary."; empty for values that are right
	}{
		"utf8":           {texts(b.String, ends32(5)), ""},
		"utf8 beyond":    {texts(b.String, ends32(6)), "buffers[1][2] = 6, want 0 to 5, the size of buffers[2]"},
		"utf8 below":     {texts(b.String, ends32(-1)), "buffers[1][2] = -1, want"},
		"a part of utf8": {long, "buffers[1][2] = 6, want"},
		"large":          {texts(b.LargeBinary, ends64(5)), ""},
		"large beyond":   {texts(b.LargeBinary, ends64(1<<40)), "buffers[1][2] = 1099511627776, want"},
		"in lists":       {within(texts(b.Binary, ends32(5))), ""},
		"beyond, lists":  {within(texts(b.Binary, ends32(6))), "children[0].buffers[1][2] = 6, want"},
		"no bytes":       {rawData{dt: b.String, length: 2, buffers: []*memory.Buffer{nil, ends32(1), nil}}, "buffers[1][2] = 1, want 0 to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: row.values.dt}
			data := rawData{dt: dt, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(8)}, dictionary: row.values.make()}.make()
			arr := array.MakeFromData(data)
			rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt}}, nil), []arrow.Array{arr}, 2)
			defer rec.Release()
			arr.Release()
			batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			if row.want == "" {
				require.NoError(t, err)
				defer batch.Release()
				assert.NoError(t, batch.ValidateFull(t.Context()))
			} else {
				assert.ErrorContains(t, err, "column[0].dictionary."+row.want)
				assert.ErrorIs(t, err, arrow.ErrInvalid)
			}
			one, err := cdevice.WrapArray(arr, device.CPUDevice())
			if row.want == "" {
				require.NoError(t, err)
				one.Release()
			} else {
				assert.ErrorContains(t, err, "array.dictionary."+row.want)
			}
		})
	}
}

// The memory of a wrapped batch is used again for others. Its exports outlive it, and end on any thread; what a program does
// with a batch that it has released finds the end of that batch.
func TestExportsOutliveTheirWrappedBatches(t *testing.T) {
	checkLeaks(t)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	exports := make(chan *cdevice.CArrowDeviceArray, 64)
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	var wrappers, consumers sync.WaitGroup
	for range 4 {
		wrappers.Go(func() {
			for value := range rounds {
				batch := wrapOne(t, mem, int64(value))
				for range 1 + value%3 {
					out := new(cdevice.CArrowDeviceArray)
					assert.NoError(t, cdevice.ExportRecordBatch(batch, out, nil))
					out.Reserved[0] = int64(value) // what the consumer is to find
					exports <- out
				}
				batch.Release()
				assert.Contains(t, panicText(t, batch.Release), "Release of an object without references")
				assert.ErrorIs(t, cdevice.ExportRecordBatch(batch, new(cdevice.CArrowDeviceArray), nil), cdevice.ErrReleased)
			}
		})
		consumers.Go(func() {
			for out := range exports {
				a := &abi.As[abi.ArrowDeviceArray](out).Array
				column := abi.At[abi.ArrowArray](children(a)[0])
				values := abi.Slice[uintptr](column.Buffers, 2)[1]
				assert.Equal(t, out.Reserved[0], *abi.At[int64](values))
				if *abi.At[int64](values)%2 == 0 {
					assert.NoError(t, cpeer.ReleaseOnThread(a))
				} else {
					cdevice.ReleaseStruct(out)
				}
			}
		})
	}
	wrappers.Wait()
	close(exports)
	consumers.Wait()
}

// wrapOne wraps a batch of one value, which is the only reference to it.
func wrapOne(t *testing.T, mem memory.Allocator, value int64) *cdevice.RecordBatch {
	b := array.NewInt64Builder(mem)
	defer b.Release()
	b.Append(value)
	column := b.NewArray()
	defer column.Release()
	rec := array.NewRecordBatch(numberedSchema, []arrow.Array{column}, 1)
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	assert.NoError(t, err)
	return batch
}
