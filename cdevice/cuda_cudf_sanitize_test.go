package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// filledUnder returns the array with other elements null, which stay what they are in the buffers.
func filledUnder(arr arrow.Array, null ...int) arrow.Array {
	d := arr.Data()
	bitmap := make([]byte, (d.Len()+7)/8+1)
	nulls := 0
	for i := range d.Len() {
		hidden := false
		for _, n := range null {
			hidden = hidden || n == i
		}
		if hidden || arr.IsNull(i) {
			nulls++
		} else {
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	buffers := append([]*memory.Buffer{memory.NewBufferBytes(bitmap)}, d.Buffers()[1:]...)
	if d.DataType().ID() == arrow.DICTIONARY {
		return array.MakeFromData(array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, nulls, 0, d.Dictionary().(*array.Data)))
	}
	return array.MakeFromData(array.NewData(d.DataType(), d.Len(), buffers, d.Children(), nulls, 0))
}

// structOf returns a struct of columns, with these elements null and nothing else changed.
func structOf(columns []arrow.Array, null ...int) arrow.Array {
	var fields []arrow.Field
	var data []arrow.ArrayData
	for i, c := range columns {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("f", i), Type: c.DataType(), Nullable: true})
		data = append(data, c.Data())
	}
	all := array.MakeFromData(array.NewData(arrow.StructOf(fields...), columns[0].Len(), []*memory.Buffer{nil}, data, 0, 0))
	return filledUnder(all, null...)
}

// withDictionary returns indices into a dictionary that may have nulls.
func withDictionary(t *testing.T, index arrow.DataType, indices string, values arrow.Array) arrow.Array {
	i := fromJSON(t, index, indices)
	dt := &arrow.DictionaryType{IndexType: index, ValueType: values.DataType()}
	return array.MakeFromData(array.NewDataWithDictionary(dt, i.Len(), i.Data().Buffers(), i.NullN(), 0, values.Data().(*array.Data)))
}

// unsanitized are arrays of four elements, of which libcudf's functions would make nonsense, and what they hold.
func unsanitized(t *testing.T) map[string][2]arrow.Array {
	text := func() arrow.Array { return fromJSON(t, arrow.BinaryTypes.String, `["a","bb","ccc","dddd"]`) }
	numbers := func() arrow.Array { return fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2,3,4]`) }
	bools := fromJSON(t, arrow.FixedWidthTypes.Boolean, `[true,false,true,true]`)
	lists := func() arrow.Array {
		return fromJSON(t, arrow.ListOf(arrow.BinaryTypes.String), `[["a","b"],["c"],["dd",null,"e"],["f"]]`)
	}
	nested := fromJSON(t, arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int8)), `[[[1],[2,3]],[[4]],[[5,6],[7]],[]]`)
	views := fromJSON(t, arrow.BinaryTypes.StringView, `["a","a text that is longer than twelve","c","d"]`)
	words := withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1,null,1]`, fromJSON(t, arrow.BinaryTypes.String, `["x","y"]`))
	holes := withDictionary(t, arrow.PrimitiveTypes.Int16, `[0,1,2,1]`, filledUnder(fromJSON(t, arrow.BinaryTypes.String, `["x","y","z"]`), 1))
	numbered := withDictionary(t, arrow.PrimitiveTypes.Int8, `[0,1,2,1]`, fromJSON(t, arrow.PrimitiveTypes.Int64, `[10,null,30]`))
	dt := arrow.StructOf(arrow.Field{Name: "f0", Type: arrow.PrimitiveTypes.Int32, Nullable: true})
	fixed := fromJSON(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16), `[[1,2],[3,4],[5,null],[7,8]]`)
	fixedBelow := fromJSON(t, arrow.ListOf(fixed.DataType()), `[[[1,2],null],null,[[3,4]],[]]`)
	in := map[string][2]arrow.Array{
		"utf8":               {filledUnder(text(), 1), fromJSON(t, arrow.BinaryTypes.String, `["a",null,"ccc","dddd"]`)},
		"large_utf8":         {filledUnder(fromJSON(t, arrow.BinaryTypes.LargeString, `["a","bb","ccc","dddd"]`), 0, 3), fromJSON(t, arrow.BinaryTypes.LargeString, `[null,"bb","ccc",null]`)},
		"list":               {filledUnder(lists(), 0, 2), fromJSON(t, lists().DataType(), `[null,["c"],null,["f"]]`)},
		"list of lists":      {filledUnder(nested, 1), fromJSON(t, nested.DataType(), `[[[1],[2,3]],null,[[5,6],[7]],[]]`)},
		"list of text":       {listOver(text(), 1), nil},
		"struct of numbers":  {structOf([]arrow.Array{numbers()}, 1, 3), fromJSON(t, dt, `[{"f0":1},null,{"f0":3},null]`)},
		"struct of text":     {structOf([]arrow.Array{text(), numbers()}, 2), nil},
		"struct of bools":    {structOf([]arrow.Array{bools}, 0), nil},
		"struct of lists":    {structOf([]arrow.Array{lists(), nested}, 2), nil},
		"struct of views":    {structOf([]arrow.Array{views}, 1), nil},
		"struct of words":    {structOf([]arrow.Array{words}, 1), nil},
		"struct of structs":  {structOf([]arrow.Array{structOf([]arrow.Array{text()}, 0)}, 1), nil},
		"struct with nulls":  {structOf([]arrow.Array{filledUnder(numbers(), 0)}, 1), nil},
		"dictionary":         {holes, nil},
		"dictionary numbers": {numbered, nil},
		"list of dictionary": {listOver(holes), nil},
		"fixed_size_list":    {filledUnder(fixed, 1), fromJSON(t, fixed.DataType(), `[[1,2],null,[5,null],[7,8]]`)},
		"list of fixed":      {fixedBelow, fixedBelow},
		"struct of fixed":    {structOf([]arrow.Array{fixed}, 0, 3), nil},
	}
	return in
}

// listOver returns lists of one element each.
func listOver(values arrow.Array, null ...int) arrow.Array {
	offsets := make([]int32, values.Len()+1)
	for i := range offsets {
		offsets[i] = int32(i)
	}
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}
	all := array.MakeFromData(array.NewData(arrow.ListOf(values.DataType()), values.Len(), buffers, []arrow.ArrayData{values.Data()}, 0, 0))
	return filledUnder(all, null...)
}

// isSanitized checks what libcudf's functions expect of an array, below nulls of a parent too.
func isSanitized(t *testing.T, arr arrow.Array) {
	t.Helper()
	switch a := arr.(type) {
	case *array.String:
		for i := range a.Len() {
			assert.False(t, a.IsNull(i) && a.Value(i) != "", "null string %d is not empty", i)
		}
	case *array.LargeString:
		for i := range a.Len() {
			assert.False(t, a.IsNull(i) && a.Value(i) != "", "null string %d is not empty", i)
		}
	case *array.List:
		for i := range a.Len() {
			first, last := a.ValueOffsets(i)
			assert.False(t, a.IsNull(i) && first != last, "null list %d is not empty", i)
		}
		isSanitized(t, a.ListValues())
	case *array.Struct:
		for k := range a.NumField() {
			for i := range a.Len() {
				assert.False(t, a.IsNull(i) && a.Field(k).IsValid(i), "field %d of null struct %d is valid", k, i)
			}
			isSanitized(t, a.Field(k))
		}
	case *array.Dictionary:
		assert.Zero(t, a.Dictionary().NullN(), "nulls in a dictionary")
		assert.True(t, arrow.IsSignedInteger(a.DataType().(*arrow.DictionaryType).IndexType.ID()))
		isSanitized(t, a.Dictionary())
	case *array.FixedSizeList:
		t.Error("a list of a fixed size")
	}
}

// What is below nulls goes, what is not stays: on the way to libcudf, and back through FromCuDF.
func TestForCuDFSanitizes(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	for name, c := range unsanitized(t) {
		t.Run(name, func(t *testing.T) {
			for _, part := range [][2]int64{{0, 4}, {1, 4}, {0, 3}, {1, 2}, {2, 2}} {
				in := array.NewSlice(c[0], part[0], part[1])
				whole, err := copyArray(background, c[0], m.GPUs[0])
				require.NoError(t, err)
				there, err := whole.Slice(part[0], part[1])
				require.NoError(t, err)
				fitted, err := there.ForCuDF(background)
				require.NoError(t, err)
				host, err := fitted.CopyToHost(background, nil)
				require.NoError(t, err)
				isSanitized(t, host)
				nulls := fitted.NullCount()
				assert.EqualValues(t, host.NullN(), nulls)
				back, err := fitted.FromCuDF(background, c[0].DataType())
				require.NoError(t, err)
				got, err := back.CopyToHost(background, nil)
				require.NoError(t, err)
				require.NoError(t, validate(got))
				if c[1] != nil {
					want := array.NewSlice(c[1], part[0], part[1])
					assert.True(t, array.Equal(want, got), "want %v\ngot  %v", want, got)
				}
				wantJSON, err := in.MarshalJSON()
				require.NoError(t, err)
				gotJSON, err := got.MarshalJSON()
				require.NoError(t, err)
				assert.JSONEq(t, string(wantJSON), string(gotJSON))
				for _, a := range []interface{ Release() }{whole, there, fitted, host, back, got} {
					a.Release()
				}
			}
		})
	}
}

// The CPU reads the bitmaps of pinned memory itself: after the work that fills them.
func TestGPUForCuDFReadsPinnedMemoryAfterItsEvent(t *testing.T) {
	checkLeaks(t)
	dt := arrow.StructOf(nullable("n", arrow.PrimitiveTypes.Int64))
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		pinned := m.GPUs[0].Pinned()
		mem, err := pinned.Allocate(background, 128, nil)
		require.NoError(t, err)
		s := newStream(t, pinned)
		require.NoError(t, pinned.Memset(mem.Ptr(), 0xFF, mem.Size(), s))
		require.NoError(t, s.Synchronize(background))
		let := m.Hold(t, s)
		require.NoError(t, pinned.Memset(mem.Ptr(), 0b101, 1, s)) // until then, no row is null
		ready, err := pinned.NewEvent()
		require.NoError(t, err)
		require.NoError(t, s.Record(ready))
		a, err := cdevice.NewArray(pinned, dt, cdevice.ArrayData{
			Length: 3, NullCount: 1, Buffers: []device.Ptr{mem.Ptr()},
			Children: []cdevice.ArrayData{{Length: 3, Buffers: []device.Ptr{0, mem.Ptr() + 64}}},
		}, cdevice.Lifetime{Ready: ready, Release: func() { assert.NoError(t, mem.FreeAfter(nil)) }})
		require.NoError(t, err)
		defer a.Release()

		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		early, err := a.ForCuDF(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		if early != nil {
			early.Release()
		}
		let()
		sanitized, err := a.ForCuDF(background)
		require.NoError(t, err)
		defer sanitized.Release()
		got, err := sanitized.CopyToHost(background, nil)
		require.NoError(t, err)
		defer got.Release()
		assert.Equal(t, 1, got.NullN())
		isSanitized(t, got)
	})
}

// Columns that need nothing are given as they are, and not read.
func TestForCuDFCopiesOnlyWhatMustChange(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	for name, c := range unsanitized(t) {
		whole, err := copyArray(background, c[0], m.GPUs[0])
		require.NoError(t, err)
		fitted, err := whole.ForCuDF(background)
		require.NoError(t, err)
		assert.NotEqual(t, whole.Buffers(), fitted.Buffers(), name)
		again, err := fitted.ForCuDF(background)
		require.NoError(t, err)
		assert.Equal(t, fitted.Buffers(), again.Buffers(), "%s: a copy of what is fit", name)
		again.Release()
		fitted.Release()
		whole.Release()
	}
	// No column of these may have nulls, but those that are null: the driver is not called.
	columns := []arrow.Array{
		fromJSON(t, arrow.ListOf(arrow.Null), `[[null],[]]`), fromJSON(t, arrow.Null, `[null,null]`),
		fromJSON(t, arrow.BinaryTypes.String, `["a","b"]`), fromJSON(t, arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1],[]]`),
		fromJSON(t, arrow.PrimitiveTypes.Int64, `[null,1]`), structOf([]arrow.Array{fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2]`)}),
	}
	fields := make([]arrow.Field, len(columns))
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: columns[i].DataType(), Nullable: true}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 2)
	there, err := cdevice.CopyToDevice(background, rec, m.GPUs[0])
	require.NoError(t, err)
	require.NoError(t, there.Synchronize(background))
	require.NoError(t, m.GPUs[0].Flush(background)) // no deferred free calls the driver below
	made, _ := calls(m, func() {
		fitted, err := there.ForCuDF(background)
		require.NoError(t, err)
		assert.Same(t, there.Schema(), fitted.Schema())
		fitted.Release()
	})
	assert.Empty(t, made)
	there.Release()
}

// What follows the rows of a slice in its source is not copied as padding.
func TestSlicesAreCopiedWithZerosBehindThem(t *testing.T) {
	checkLeaks(t)
	const rows = 1000
	b := array.NewInt32Builder(memory.DefaultAllocator)
	for i := range rows {
		b.Append(-1)
		if i == rows/2 {
			b.AppendNull()
		}
	}
	column := b.NewArray()
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	whole, err := copyArray(background, column, gpu)
	require.NoError(t, err)
	for _, n := range []int64{3, 8, 24, 500, 601, 992} {
		part, err := whole.Slice(0, n)
		require.NoError(t, err)
		fitted, err := part.ForCuDF(background)
		require.NoError(t, err)
		copied, err := part.CopyTo(background, gpu)
		require.NoError(t, err)
		for name, a := range map[string]*cdevice.Array{"ForCuDF": fitted, "CopyTo": copied} {
			require.NoError(t, a.Synchronize(background))
			for k, used := range []int64{(n + 7) / 8, n * 4} {
				if at := a.Buffers()[k]; at != 0 {
					padded := (used + 255) / 256 * 256
					assert.Equal(t, make([]byte, padded-used), readFrom(t, gpu, uintptr(at), padded)[used:], "%s of %d rows, buffer %d", name, n, k)
				}
			}
			a.Release()
		}
		part.Release()
	}
	whole.Release()
}

// A column that must go through the CPU is one of several, which stay on the device.
func TestForCuDFSanitizesOneColumnOfMany(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null,3,4]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, pinned := range []bool{false, true} {
			text := filledUnder(fromJSON(t, arrow.BinaryTypes.String, `["a","bb","ccc","dddd"]`), 1)
			fixed := fromJSON(t, arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Int8), `[[1],[2],[3],[4]]`)
			schema := arrow.NewSchema([]arrow.Field{
				{Name: "n", Type: want.DataType(), Nullable: true},
				{Name: "t", Type: text.DataType(), Nullable: true}, {Name: "f", Type: fixed.DataType()},
				{Name: "m", Type: want.DataType(), Nullable: true},
			}, nil)
			rec := array.NewRecordBatch(schema, []arrow.Array{want, text, fixed, want}, 4)
			dev := gpu
			if pinned {
				dev = gpu.Pinned()
			}
			there, err := cdevice.CopyToDevice(background, rec, dev)
			require.NoError(t, err)
			fitted, err := there.ForCuDF(background)
			require.NoError(t, err)
			there.Release()
			assert.Equal(t, arrow.LIST, fitted.Schema().Field(2).Type.ID())
			assert.Equal(t, dev.ID(), fitted.DeviceID())
			b := sent(t, fitted, dev)
			back, err := b.FromCuDF(background, schema)
			require.NoError(t, err)
			b.Release()
			sameBatchOnHost(t, rec, back)
			back.Release()
			require.NoError(t, gpu.Flush(background))
		}
	})
}

// tripToCuDF sends a batch to the GPU, as libcudf wants it, through C, and back.
func tripToCuDF(rec arrow.RecordBatch, gpu device.Device) error {
	there, err := cdevice.CopyToDevice(background, rec, gpu)
	if err != nil {
		return err
	}
	out, schema := garbageArray(), garbageSchema()
	err = exportMade(out, schema)(there.ForCuDF(background))
	there.Release()
	if err != nil {
		return err
	}
	imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
	if err != nil {
		return err
	}
	defer imported.Release()
	back, err := imported.FromCuDF(background, rec.Schema())
	if err != nil {
		return err
	}
	defer back.Release()
	host, err := back.CopyToHost(background, nil)
	if err != nil {
		return err
	}
	defer host.Release()
	if !array.RecordEqual(rec, host) {
		return errors.New("the data is not the same")
	}
	return nil
}

// Each call of the driver in a trip on which columns are rebuilt both ways is made to fail.
func TestEachCallOfATripToCuDFFails(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	columns := []arrow.Array{
		filledUnder(fromJSON(t, arrow.BinaryTypes.String, `["a","bb","ccc"]`), 1), fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null,3]`),
		fromJSON(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8), `[[1,2],null,[3,null]]`),
	}
	fields := make([]arrow.Field, len(columns))
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: columns[i].DataType(), Nullable: true}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 3)
	for m.Sim.Report().Live.Events > 0 { // cached events
		require.NoError(t, m.GPUs[0].Trim(background))
	}
	require.Greater(t, eachCallFails(t, m, func() error { return tripToCuDF(rec, m.GPUs[0]) }), 50)
}

// onGPU is an array in device memory with these buffers after those that the data has.
func onGPU(t *testing.T, gpu device.Device, dt arrow.DataType, data cdevice.ArrayData, buffers ...[]byte) *cdevice.Array {
	t.Helper()
	var memories []device.Memory
	put := func(b []byte) device.Ptr {
		s := newStream(t, gpu)
		memories = append(memories, filled(t, gpu, s, b))
		require.NoError(t, s.Synchronize(background))
		return memories[len(memories)-1].Ptr()
	}
	for _, b := range buffers {
		data.Buffers = append(data.Buffers, put(b))
	}
	a, err := cdevice.NewArray(gpu, dt, data, cdevice.Lifetime{Release: func() {
		for _, m := range memories {
			assert.NoError(t, m.FreeAfter(nil))
		}
	}})
	require.NoError(t, err)
	return a
}

// Offsets and indices of a producer that is not to be trusted are errors where a column is rebuilt.
func TestForCuDFOfInconsistentArrays(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	offsets := arrow.Int32Traits.CastToBytes([]int32{0, 9, 3, 4})
	text := onGPU(t, gpu, arrow.BinaryTypes.String, cdevice.ArrayData{Length: 3, NullCount: 1}, []byte{0b101}, offsets, []byte("abcd"))
	_, err := text.ForCuDF(background)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "array.offsets[0] = 0 to 9, want an ascending range within 0 to 4")
	text.Release()

	holes := onGPU(t, gpu, arrow.BinaryTypes.String, cdevice.ArrayData{Length: 2, NullCount: 1}, []byte{0b01}, arrow.Int32Traits.CastToBytes([]int32{0, 1, 1}), []byte("x"))
	b := holes.Buffers()
	values := &cdevice.ArrayData{Length: 2, NullCount: 1, Buffers: b}
	for index, want := range map[int8]string{2: "array.indices[1] = 2, want 0 to 1", -1: "array.indices[1] = -1, want 0 to 1"} {
		words := onGPU(t, gpu, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
			cdevice.ArrayData{Length: 2, Dictionary: values, Buffers: []device.Ptr{0}}, []byte{0, byte(index)})
		_, err = words.ForCuDF(background)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.ErrorContains(t, err, want)
		words.Release()
	}
	holes.Release()

	lists := onGPU(t, gpu, arrow.ListOf(arrow.Null), cdevice.ArrayData{Length: 3, NullCount: 1, Children: []cdevice.ArrayData{{Length: 4}}}, []byte{0b101}, offsets)
	_, err = lists.FromCuDF(background, arrow.FixedSizeListOf(2, arrow.Null))
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "array.offsets[0] = 0 to 9, want an ascending range within 0 to 4")
	lists.Release()
	require.NoError(t, gpu.Flush(background))
}
