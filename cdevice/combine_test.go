package cdevice_test

import (
	"io"
	"testing"

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

// Batches of existing arrays: RecordBatchFromArrays, WithColumn.

// ints is an array of numbers on the CPU that only its caller holds.
func ints(t *testing.T, text string) *cdevice.Array {
	t.Helper()
	a, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int64, text), device.CPUDevice())
	require.NoError(t, err)
	return a
}

func TestRecordBatchFromArrays(t *testing.T) {
	checkLeaks(t)
	a, b := ints(t, `[1,null,3]`), ints(t, `[4,5,6]`)
	batch := wrap(t, twoColumns(t))
	text := batch.Column(1)
	part, err := text.Slice(1, 4)
	require.NoError(t, err)
	text.Release()
	metadata := arrow.NewMetadata([]string{"of"}, []string{"the new schema"})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int64, Metadata: metadata},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}, &metadata)
	of, err := cdevice.RecordBatchFromArrays(schema, a, b, part, a)
	require.NoError(t, err)
	for _, column := range []*cdevice.Array{a, b, part} {
		column.Release() // the batch holds their memory on its own
	}
	defer of.Release()
	assert.True(t, of.Schema().Metadata().Equal(metadata))
	one := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null,3]`)
	want := array.NewRecordBatch(schema, []arrow.Array{one, fromJSON(t, arrow.PrimitiveTypes.Int64, `[4,5,6]`), fromJSON(t, arrow.BinaryTypes.String, `["b","c",null]`), one}, 3)
	defer want.Release()
	sameBatchOnHost(t, want, of)

	out, outSchema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(of, out, outSchema))
	again := kept(cdevice.ImportRecordBatch(out, outSchema))(t)
	sameBatchOnHost(t, want, again)
}

func TestWithColumn(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	b := wrap(t, rec)
	column := ints(t, `[1,2,3,4,5]`)
	added := kept(b.WithColumn(arrow.Field{Name: "new", Type: arrow.PrimitiveTypes.Int64}, column))(t)
	replaced := kept(added.WithColumn(arrow.Field{Name: "i", Type: arrow.PrimitiveTypes.Int64}, column))(t)
	column.Release()

	numbers := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3,4,5]`)
	metadata := rec.Schema().Metadata()
	field := arrow.Field{Name: "new", Type: arrow.PrimitiveTypes.Int64}
	want := array.NewRecordBatch(arrow.NewSchema(append(rec.Schema().Fields(), field), &metadata), []arrow.Array{rec.Column(0), rec.Column(1), numbers}, 5)
	defer want.Release()
	sameBatchOnHost(t, want, added)
	assert.True(t, added.Schema().Metadata().Equal(metadata))
	first := arrow.Field{Name: "i", Type: arrow.PrimitiveTypes.Int64}
	want = array.NewRecordBatch(arrow.NewSchema([]arrow.Field{first, rec.Schema().Field(1), field}, &metadata), []arrow.Array{numbers, rec.Column(1), numbers}, 5)
	defer want.Release()
	sameBatchOnHost(t, want, replaced)
}

func TestColumnsThatDoNotFit(t *testing.T) {
	checkLeaks(t)
	b := wrap(t, twoColumns(t))
	i, s := b.Column(0), b.Column(1)
	defer i.Release()
	defer s.Release()
	short := kept(i.Slice(0, 4))(t)
	gone, err := i.Slice(0, 5)
	require.NoError(t, err)
	gone.Release()
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	elsewhere := kept(cdevice.NewArray(gpu, arrow.Null, cdevice.ArrayData{Length: 5}, cdevice.Lifetime{}))(t)
	twice := kept(b.Select(0, 0))(t)

	int32s := arrow.Field{Name: "i", Type: arrow.PrimitiveTypes.Int32}
	of := func(types []arrow.DataType, columns ...*cdevice.Array) error {
		fields := make([]arrow.Field, len(types))
		for k, dt := range types {
			fields[k] = arrow.Field{Type: dt}
		}
		return second(cdevice.RecordBatchFromArrays(arrow.NewSchema(fields, nil), columns...))
	}
	with := func(b *cdevice.RecordBatch, f arrow.Field, a *cdevice.Array) error { return second(b.WithColumn(f, a)) }
	integer, text := arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String
	for want, err := range map[string]error{
		"new: schema has 2 fields for 1 column":                                   of([]arrow.DataType{integer, text}, i),
		"new: columns = none, want at least one":                                  of(nil),
		"new: column[1].type = utf8, want the field's: int32":                     of([]arrow.DataType{integer, integer}, i, s),
		"new: column[1].length = 4, want 5, the length of the other columns":      of([]arrow.DataType{integer, integer}, i, short),
		"new: column[1].DeviceID = cuda:0, want cpu":                              of([]arrow.DataType{integer, arrow.Null}, i, elsewhere),
		"new: column[0] = nil, want an array":                                     of([]arrow.DataType{integer}, nil),
		"with column: column.type = utf8, want the field's: int32":                with(b, int32s, s),
		"with column: column.length = 4, want 5, the length of the other columns": with(b, int32s, short),
		"with column: column.DeviceID = cuda:0, want cpu":                         with(b, arrow.Field{Name: "n", Type: arrow.Null}, elsewhere),
		"with column: field.Name = i, want a name that 2 fields of the batc":      with(twice, int32s, i),
	} {
		assert.ErrorContains(t, err, "cdevice: "+want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	assert.ErrorIs(t, of([]arrow.DataType{integer, integer}, i, gone), cdevice.ErrReleased)
	assert.ErrorIs(t, with(b, int32s, gone), cdevice.ErrReleased)
}

// Columns that are pending on different streams have one event together, after all of theirs.
func TestGPUColumnsOfSeveralStreams(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 3, 1000, false)
		defer rec.Release()
		columns := make([]*cdevice.Array, 3)
		for i := range columns {
			there, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(newStream(t, gpu)))
			require.NoError(t, err)
			columns[i] = there.Column(i)
			there.Release()
		}
		of, err := cdevice.RecordBatchFromArrays(rec.Schema(), columns...)
		require.NoError(t, err)
		with, err := of.WithColumn(rec.Schema().Field(0), columns[0])
		require.NoError(t, err)
		for _, c := range columns {
			c.Release()
		}
		of.Release()
		defer with.Release()
		sameBatchOnHost(t, rec, with)
	})
}

// The memory of a column is freed when the consumer of a combined batch has released it, after work of the program
// that began later and was waited for. The program releases the column first.
func TestGPUCombinedColumnIsReadBeforeItsConsumerReleasesIt(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 2, 700, false)
		defer rec.Release()
		itself := func(a *cdevice.Array) *cdevice.Array { return a }
		recorded := func(a *cdevice.Array) *cdevice.Array {
			defer a.Release()
			there, err := a.WithEvent(newStream(t, gpu))
			require.NoError(t, err)
			return there
		}
		imported := func(a *cdevice.Array) *cdevice.Array {
			defer a.Release()
			out := garbageArray()
			require.NoError(t, cdevice.ExportArray(a, out, nil))
			there, err := cdevice.ImportArrayWithType(out, a.DataType(), cdevice.WithDevice(gpu))
			require.NoError(t, err)
			return there
		}
		for _, made := range []func(*cdevice.Array) *cdevice.Array{itself, recorded, imported} {
			other, column := copiedTo(t, rec.Column(0), gpu), made(copiedTo(t, rec.Column(1), gpu))
			of, err := cdevice.RecordBatchFromArrays(rec.Schema(), other, column)
			require.NoError(t, err)
			other.Release()
			out := garbageArray()
			require.NoError(t, cdevice.ExportRecordBatch(of, out, nil))
			of.Release()
			release, err := gpu.HoldSynchronization(background)
			require.NoError(t, err)
			cdevice.ReleaseStruct(out)
			sameOnHost(t, rec.Column(1), column)
			column.Release()
			release()
			require.NoError(t, gpu.Flush(background))
		}
	})
}

// MapTo makes batches of another schema.
func TestMapToAnotherSchema(t *testing.T) {
	checkLeaks(t)
	field := arrow.Field{Name: "twice", Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
	schema := arrow.NewSchema([]arrow.Field{field, field}, &metadata)
	double := func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		column := b.Column(0)
		defer column.Release()
		return cdevice.RecordBatchFromArrays(arrow.NewSchema([]arrow.Field{{Name: "x", Type: field.Type}, {Name: "y", Type: field.Type}}, nil), column, column)
	}
	r := asked(t, nil, numbered(t, 3)...)
	to := kept(r.WithMetadata(metadata).MapTo(schema, double))(t)
	r.Release()
	assert.Same(t, schema, to.Schema())
	assert.True(t, to.Metadata().Equal(metadata), "of the stream")
	n := 0
	for b, err := range to.All() {
		require.NoError(t, err)
		assert.True(t, b.Schema().Equal(schema))
		assert.Equal(t, "twice", b.Schema().Field(1).Name)
		assert.Equal(t, n, numberOf(t, b))
		n++
	}
	assert.Equal(t, 3, n)
}

func TestMapToResultsThatDoNotFit(t *testing.T) {
	checkLeaks(t)
	other := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	for want, f := range map[string]func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error){
		"Column(0).type":       func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b, nil },
		"nil without an error": func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return nil, nil },
		"no more paper":        func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error) { panic("no more paper") },
		"Map returned: EOF":    func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return nil, io.EOF },
	} {
		r := asked(t, nil, numbered(t, 2)...)
		to, err := r.MapTo(other, f)
		require.NoError(t, err)
		assert.False(t, to.Next())
		assert.ErrorContains(t, to.Err(), want)
		to.Release()
		r.Release()
	}
}

// An ArrayReader maps to arrays of another type, and copies to a device, as a RecordReader does.
func TestGPUArrayReaderMapsAndCopies(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		checkLeaks(t)
		chunks := []arrow.Array{fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,null,3]`), fromJSON(t, arrow.PrimitiveTypes.Int32, `[4]`)}
		chunked := arrow.NewChunked(arrow.PrimitiveTypes.Int32, chunks)
		defer chunked.Release()
		r, err := cdevice.WrapChunked(chunked, device.CPUDevice())
		require.NoError(t, err)
		there, err := r.CopyTo(background, m.GPUs[0])
		require.NoError(t, err)
		r.Release()
		field := arrow.Field{Name: "two", Type: arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true})}
		to, err := there.MapTo(field, func(a *cdevice.Array) (*cdevice.Array, error) {
			if err := a.Synchronize(background); err != nil { // the result has no event
				return nil, err
			}
			return cdevice.NewArray(m.GPUs[0], field.Type, cdevice.ArrayData{
				Length: a.Len(), Buffers: []device.Ptr{0},
				Children: []cdevice.ArrayData{{Length: a.Len(), NullCount: a.NullCount(), Offset: a.Offset(), Buffers: a.Buffers()}},
			}, cdevice.Lifetime{Release: retained(a)})
		})
		require.NoError(t, err)
		there.Release()
		defer func() {
			to.Release()
			assert.NoError(t, m.GPUs[0].Flush(background)) // each result releases its source on a goroutine of the device
		}()
		assert.Equal(t, field, to.Field())
		assert.Equal(t, device.CUDA, to.DeviceType())
		n := 0
		for a, err := range to.All() {
			require.NoError(t, err)
			child := a.Child(0)
			sameOnHost(t, chunks[n], child)
			child.Release()
			n++
		}
		assert.Equal(t, 2, n)
	})
}

// retained is the release of a reference to a that a result holds.
func retained(a *cdevice.Array) func() {
	a.Retain()
	return a.Release
}
