//go:build cgo

package cdata_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// An export holds the batch, and pins its memory, until C releases it, on any thread; it fills structs that are not zero.
func TestExportsHoldPinnedMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	b := array.NewInt64Builder(mem)
	b.AppendValues([]int64{1, 2, 3}, nil)
	arr := b.NewArray()
	b.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arr.DataType()}}, nil), []arrow.Array{arr}, 3)
	garbage := func() (*cdata.CArrowArray, *cdata.CArrowSchema) {
		a, s := new(cdata.CArrowArray), new(cdata.CArrowSchema)
		*arrayMirror(a) = abi.ArrowArray{Length: 1, NullCount: 2, Offset: 3, NBuffers: 4, NChildren: 5, Buffers: 6, Children: 7, Dictionary: 8, PrivateData: 9}
		return a, s
	}
	batch, schema := garbage()
	cdata.ExportArrowRecordBatch(rec, batch, schema)
	cdata.ReleaseCArrowSchema(schema)
	column, field := garbage()
	cdata.ExportArrowArray(arr, column, field)
	f, err := cdata.ImportCArrowField(field)
	require.NoError(t, err)
	assert.Equal(t, arrow.Field{Type: arrow.PrimitiveTypes.Int64, Nullable: true}, f)
	arr.Release()
	rec.Release()
	runtime.GC()
	values := abi.Slice[uintptr](arrayMirror(column).Buffers, 2)[1]
	assert.True(t, cpeer.IsPinned(values))
	assert.Equal(t, []int64{1, 2, 3}, abi.Slice[int64](values, 3))
	require.NoError(t, cpeer.ReleaseOnThread(arrayMirror(column)))
	assert.NotZero(t, mem.CurrentAlloc())
	require.NoError(t, cpeer.ReleaseOnThread(arrayMirror(batch)))
	cdata.ReleaseCArrowArray(batch)
	cdata.ReleaseCArrowArray(nil)
}

// cgo refuses a struct that holds addresses of Go memory that is not pinned.
func TestExportsToGoVariables(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			arr, err := c.Array(memory.NewGoAllocator(), cases.Nulls)
			require.NoError(t, err)
			defer arr.Release()
			rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.Type, Nullable: true}}, nil), []arrow.Array{arr}, -1)
			defer rec.Release()
			cpeer.PassArray(func(at unsafe.Pointer) { cdata.ExportArrowRecordBatch(rec, (*cdata.CArrowArray)(at), nil) })
			cpeer.PassArray(func(at unsafe.Pointer) { cdata.ExportArrowArray(arr, (*cdata.CArrowArray)(at), nil) })
			cpeer.PassSchema(func(at unsafe.Pointer) { cdata.ExportArrowSchema(rec.Schema(), (*cdata.CArrowSchema)(at)) })
			cpeer.PassStream(func(at unsafe.Pointer) {
				r, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec, rec})
				require.NoError(t, err)
				defer r.Release()
				cdata.ExportRecordReader(r, (*cdata.CArrowArrayStream)(at))
			})
		})
	}
}

// Functions without an error result panic with an error that names the function and the argument, before they write.
func TestExportsPanicWithAnError(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	rec := numbers(t, 1)
	unknown := arrow.NewSchema([]arrow.Field{{Name: "t", Type: &arrow.Time32Type{Unit: arrow.Nanosecond}}}, nil)
	for text, do := range map[string]func(){
		"cdata: ExportArrowSchema: cdevice: export: schema = nil, want a schema: invalid":               func() { cdata.ExportArrowSchema(nil, new(cdata.CArrowSchema)) },
		"cdata: ExportArrowSchema: cdevice: export: ArrowSchema = NULL, want a struct to fill: invalid": func() { cdata.ExportArrowSchema(rec.Schema(), nil) },
		"cdata: ExportArrowSchema: ": func() { cdata.ExportArrowSchema(unknown, new(cdata.CArrowSchema)) },
		"cdata: ExportArrowRecordBatch: cdevice: wrap: RecordBatch = nil, want a record batch of arrow-go: invalid":                    func() { cdata.ExportArrowRecordBatch(nil, new(cdata.CArrowArray), nil) },
		"cdata: ExportArrowRecordBatch: cdevice: export: ArrowArray = NULL, want a struct to fill: invalid":                            func() { cdata.ExportArrowRecordBatch(rec, nil, nil) },
		"cdata: ExportArrowArray: cdevice: wrap: Array = nil, want an array of arrow-go: invalid":                                      func() { cdata.ExportArrowArray(nil, new(cdata.CArrowArray), nil) },
		"cdata: ExportArrowArray: cdevice: export: ArrowArray = NULL, want a struct to fill: invalid":                                  func() { cdata.ExportArrowArray(rec.Column(0), nil, nil) },
		"cdata: ExportRecordReader: reader = nil, want a reader: invalid":                                                              func() { cdata.ExportRecordReader(nil, new(cdata.CArrowArrayStream)) },
		"cdata: ExportRecordReader: cdevice: export: ArrowArrayStream = NULL, want a struct to fill: invalid":                          func() { cdata.ExportRecordReader(newSource(t), nil) },
		"cdata: CreateAsyncDeviceStreamHandler: cdevice: import: ArrowAsyncDeviceStreamHandler = NULL, want a struct to fill: invalid": func() { cdata.CreateAsyncDeviceStreamHandler(background, 1, nil) },
	} {
		func() {
			defer func() {
				err, ok := recover().(error)
				if assert.True(t, ok, "an error: %s", text) {
					assert.ErrorContains(t, err, text)
					assert.True(t, errors.Is(err, arrow.ErrInvalid) || errors.Is(err, arrow.ErrNotImplemented), "%v", err)
				}
			}()
			do()
		}()
	}
}

// An export counts the nulls of a slice and does not change the slice. So programs that import it may ask for the count on several
// goroutines.
func TestExportsCountNulls(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	dt := arrow.StructOf(arrow.Field{Name: "x", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true})
	whole, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(`[{"x":[1]},null,{"x":null},{"x":[null,2]}]`))
	require.NoError(t, err)
	defer whole.Release()
	part := array.NewSlice(whole, 1, 4)
	defer part.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "s", Type: dt, Nullable: true}}, nil), []arrow.Array{part}, 3)
	defer rec.Release()
	unknown := part.Data().NullN()
	require.Equal(t, -1, unknown)

	a := new(cdata.CArrowArray)
	checkCounts := func(s *abi.ArrowArray) {
		x := abi.At[abi.ArrowArray](*abi.At[uintptr](s.Children))
		values := abi.At[abi.ArrowArray](*abi.At[uintptr](x.Children))
		assert.Equal(t, []int64{1, 2, 1}, []int64{s.NullCount, x.NullCount, values.NullCount})
		assert.Equal(t, unknown, part.Data().NullN())
	}
	cdata.ExportArrowArray(part, a, nil)
	checkCounts(arrayMirror(a))
	cdata.ReleaseCArrowArray(a)
	cdata.ExportArrowRecordBatch(rec, a, nil)
	checkCounts(abi.At[abi.ArrowArray](*abi.At[uintptr](arrayMirror(a).Children)))
	cdata.ReleaseCArrowArray(a)

	rdr, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec})
	require.NoError(t, err)
	r := imported(t, exported(rdr))
	require.True(t, r.Next())
	assert.Equal(t, 1, r.RecordBatch().Column(0).Data().NullN())

	s := newAsync(background, 1, rec.Schema())
	go s.send(rec)
	for m := range (<-s.consumer).Stream {
		assert.Equal(t, 1, m.Record.Column(0).Data().NullN())
		m.Record.Release()
	}
	require.NoError(t, <-s.ended)
}

// An export counts the nulls of children, too.
func TestExportsCountNullsOfChildren(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	values, _, err := array.FromJSON(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32, strings.NewReader(`[1, null, null]`))
	require.NoError(t, err)
	defer values.Release()
	part := array.NewSlice(values, 1, 3)
	defer part.Release()
	require.Equal(t, -1, part.Data().NullN())
	arr, err := array.NewStructArray([]arrow.Array{part}, []string{"x"})
	require.NoError(t, err)
	defer arr.Release()

	a := new(cdata.CArrowArray)
	cdata.ExportArrowArray(arr, a, nil)
	defer cdata.ReleaseCArrowArray(a)
	child := abi.At[abi.ArrowArray](*abi.At[uintptr](arrayMirror(a).Children))
	assert.EqualValues(t, 2, child.NullCount)
}
