//go:build cgo

package cdata_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
)

// counted is a batch of numbers whose releases are counted.
type counted struct {
	arrow.RecordBatch
	live *atomic.Int64
}

func (c counted) Retain() { c.live.Add(1); c.RecordBatch.Retain() }

func (c counted) Release() { c.live.Add(-1); c.RecordBatch.Release() }

// exportedBatch fills C structs with numbers; live is how many references the export holds.
func exportedBatch(t *testing.T) (a *cdata.CArrowArray, s *cdata.CArrowSchema, live *atomic.Int64) {
	t.Helper()
	a, s, live = new(cdata.CArrowArray), new(cdata.CArrowSchema), new(atomic.Int64)
	cdata.ExportArrowRecordBatch(counted{numbers(t, 1, 2, 3), live}, a, s)
	require.EqualValues(t, 1, live.Load())
	return a, s, live
}

func isReleased(a *cdata.CArrowArray, s *cdata.CArrowSchema) bool {
	return arrayMirror(a).Release == 0 && (s == nil || schemaMirror(s).Release == 0)
}

func TestImportsTakeTheStructs(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	schema := numbers(t).Schema()
	imports := map[string]func(*cdata.CArrowArray, *cdata.CArrowSchema) (interface{ Release() }, error){
		"ImportCRecordBatch": func(a *cdata.CArrowArray, s *cdata.CArrowSchema) (interface{ Release() }, error) {
			rec, err := cdata.ImportCRecordBatch(a, s)
			if err == nil {
				assert.Equal(t, []int64{1, 2, 3}, valuesOf(rec))
				assert.True(t, rec.Schema().Equal(schema))
			}
			return rec, err
		},
		"ImportCRecordBatchWithSchema": func(a *cdata.CArrowArray, s *cdata.CArrowSchema) (interface{ Release() }, error) {
			cdata.ReleaseCArrowSchema(s)
			rec, err := cdata.ImportCRecordBatchWithSchema(a, schema)
			if err == nil {
				assert.Equal(t, []int64{1, 2, 3}, valuesOf(rec))
				assert.Same(t, schema, rec.Schema())
			}
			return rec, err
		},
		"ImportCArray": func(a *cdata.CArrowArray, s *cdata.CArrowSchema) (interface{ Release() }, error) {
			f, arr, err := cdata.ImportCArray(a, s)
			if err == nil {
				assert.Equal(t, []int64{1, 2, 3}, arr.(*array.Struct).Field(0).(*array.Int64).Int64Values())
			}
			if s != nil && !errors.Is(err, cdevice.ErrReleased) {
				assert.Equal(t, arrow.StructOf(schema.Fields()...), f.Type, "also if the array is wrong")
			}
			return arr, err
		},
		"ImportCArrayWithType": func(a *cdata.CArrowArray, s *cdata.CArrowSchema) (interface{ Release() }, error) {
			cdata.ReleaseCArrowSchema(s)
			arr, err := cdata.ImportCArrayWithType(a, arrow.StructOf(schema.Fields()...))
			return arr, err
		},
	}
	for name, imp := range imports {
		t.Run(name, func(t *testing.T) {
			a, s, live := exportedBatch(t)
			got, err := imp(a, s)
			require.NoError(t, err)
			assert.True(t, isReleased(a, s))
			cdata.ReleaseCArrowArray(a) // of no effect
			assert.EqualValues(t, 1, live.Load())
			got.Release()
			assert.Zero(t, live.Load())

			a, s, live = exportedBatch(t)
			arrayMirror(a).Length = -1
			got, err = imp(a, s)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, "ArrowArray.length = -1")
			assert.Nil(t, got, "no typed nil")
			assert.True(t, isReleased(a, s))
			cdata.ReleaseCArrowArray(a) // as arrow-go's comment demands
			assert.Zero(t, live.Load())

			_, err = imp(a, s)
			assert.ErrorIs(t, err, cdevice.ErrReleased, "and not the end of the process")

			a, s, live = exportedBatch(t)
			cdata.ReleaseCArrowSchema(s)
			if got, err = imp(a, s); err != nil { // where the schema is imported
				assert.Nil(t, got)
				assert.True(t, isReleased(a, s))
			} else {
				got.Release()
			}
			assert.Zero(t, live.Load())
			_, err = imp(nil, nil)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		})
	}
}

func TestImportsOfSchemas(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	md := arrow.MetadataFrom(map[string]string{"k": "v"})
	want := arrow.NewSchema([]arrow.Field{{Name: "fixed", Type: &arrow.FixedSizeBinaryType{ByteWidth: 0}, Nullable: true, Metadata: md}}, &md)
	s := new(cdata.CArrowSchema)
	cdata.ExportArrowSchema(want, s)
	got, err := cdata.ImportCArrowSchema(s)
	require.NoError(t, err, "w:0")
	assert.True(t, want.Equal(got))
	assert.True(t, got.Metadata().Equal(md))
	assert.Zero(t, schemaMirror(s).Release)
	_, err = cdata.ImportCArrowSchema(s)
	assert.ErrorIs(t, err, cdevice.ErrReleased)

	a := new(cdata.CArrowArray)
	cdata.ExportArrowArray(numbers(t, 1).Column(0), a, s)
	_, err = cdata.ImportCArrowSchema(s)
	assert.ErrorIs(t, err, arrow.ErrInvalid, "no struct")
	assert.Zero(t, schemaMirror(s).Release)
	cdata.ReleaseCArrowArray(a)
}

// firstIsNull is the buffers of a struct array whose first element is null. A variable of a function could move.
var firstIsNull = [1]*byte{&[]byte{0b1111_1110}[0]}

// The rows in front of a batch belong to no column; nulls of the struct itself would be lost.
func TestRootsOfBatches(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	a, s, _ := exportedBatch(t)
	arrayMirror(a).Offset, arrayMirror(a).Length = 1, 2
	rec, err := cdata.ImportCRecordBatch(a, s)
	require.NoError(t, err)
	assert.Equal(t, []int64{2, 3}, valuesOf(rec))
	assert.EqualValues(t, 2, rec.NumRows())
	rec.Release()

	a, s, live := exportedBatch(t)
	arrayMirror(a).Buffers, arrayMirror(a).NullCount = uintptr(unsafe.Pointer(&firstIsNull)), -1
	arrayMirror(a).Offset, arrayMirror(a).Length = 1, 2
	rec, err = cdata.ImportCRecordBatch(a, s)
	require.NoError(t, err, "none of its rows is null")
	assert.Equal(t, []int64{2, 3}, valuesOf(rec))
	rec.Release()
	assert.Zero(t, live.Load())

	a, s, live = exportedBatch(t)
	arrayMirror(a).Buffers, arrayMirror(a).NullCount = uintptr(unsafe.Pointer(&firstIsNull)), -1
	_, err = cdata.ImportCRecordBatch(a, s)
	assert.ErrorContains(t, err, "null_count = -1, want 0 for a record batch: cdevice.ImportArray takes nulls", "row 0 is null")
	assert.Zero(t, live.Load())

	a, s, live = exportedBatch(t)
	arrayMirror(a).NullCount = 1
	_, err = cdata.ImportCRecordBatch(a, s)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.Zero(t, live.Load())
}

// Batches of a stream with nulls that were not counted: their producer exports struct arrays.
func TestRootsOfStreams(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	dt := arrow.StructOf(numbers(t).Schema().Fields()...)
	whole, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(`[{"n":1},{"n":2},null]`))
	require.NoError(t, err)
	defer whole.Release()
	field := arrow.Field{Type: dt, Nullable: true}
	arrays, err := cdevice.NewArrayReader(field, device.CPU, func(yield func(*cdevice.Array, error) bool) {
		for end := range int64(2) { // no row is null, and one
			part := array.NewSlice(whole, 1, end+2)
			a, err := cdevice.WrapArray(part, device.CPUDevice())
			part.Release()
			more := yield(a, err)
			a.Release()
			if !more {
				return
			}
		}
	})
	require.NoError(t, err)
	defer arrays.Release()
	s := new(cdata.CArrowArrayStream)
	require.NoError(t, cdevice.ExportArrayReader(arrays, s))
	r := imported(t, s)
	require.True(t, r.Next(), "%v", r.Err())
	assert.Equal(t, []int64{2}, valuesOf(r.RecordBatch()))
	assert.False(t, r.Next())
	assert.ErrorContains(t, r.Err(), "null_count = -1, want 0 for a record batch: cdevice.ImportArray takes nulls")
}

// The addresses of the two structs are exchanged: neither struct is read as the other one, and neither is released.
func TestArrayAndSchemaExchanged(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.AppendValues([]int64{1, 2, 3}, nil)
	arr := b.NewArray()
	b.Release()
	defer arr.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arr.DataType()}}, nil), []arrow.Array{arr}, 3)
	defer rec.Release()
	var x struct {
		a cdata.CArrowArray
		s cdata.CArrowSchema
		_ [8]uintptr // which an import reads of an array
	}
	exchanged, of := (*cdata.CArrowArray)(unsafe.Pointer(&x.s)), (*cdata.CArrowSchema)(unsafe.Pointer(&x.a))
	const want = "cdevice: import: ArrowArray = an ArrowSchema, want an array: exchange the two addresses; neither struct was taken: invalid"

	cdata.ExportArrowRecordBatch(rec, &x.a, &x.s)
	_, err := cdata.ImportCRecordBatch(exchanged, of)
	assert.EqualError(t, err, want)
	cdata.ReleaseCArrowArray(&x.a)
	cdata.ReleaseCArrowSchema(&x.s)

	cdata.ExportArrowArray(arr, &x.a, &x.s)
	_, _, err = cdata.ImportCArray(exchanged, of)
	assert.EqualError(t, err, want)
	cdata.ReleaseCArrowArray(&x.a)
	cdata.ReleaseCArrowSchema(&x.s)
}
