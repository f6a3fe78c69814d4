package cdevice_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Mistakes of programs that use the package for the first time. Each error names the remedy.

func TestMistakesWithDevices(t *testing.T) {
	checkLeaks(t)
	gpu := batchOnDevice(t, cuda, 0)
	defer gpu.Release()
	var array cdata.CArrowArray
	for want, make := range map[string]func() error{
		"cdevice: read: the CPU cannot access memory of cuda:3: CopyToHost copies it: not supported": func() error {
			return second(gpu.HostView(background))
		},
		"cdevice: read: RecordBatch.DeviceID = cuda:3, want memory that the CPU can access: the CPU cannot access memory of cuda:3: " +
			"CopyToHost copies it, or CopyTo with device.CPUDevice(): not supported": func() error {
			return second(gpu.AsCPU(background))
		},
		"cdevice: export: RecordBatch.DeviceID = cuda:3, want memory that the CPU can access: the CPU cannot access memory of cuda:3: " +
			"CopyTo with device.CPUDevice() copies it: not supported": func() error {
			return cdevice.ExportRecordBatch(gpu, &array, nil)
		},
		"cdevice: wrap: device = cuda:3, want the device that arrow-go's memory is on, which the CPU can access: " +
			"the CPU cannot access memory of cuda:3: CopyToDevice, or CopyTo of a reader, copies there: not supported": func() error {
			return second(cdevice.WrapRecordBatch(twoColumns(t), gpuOnly{device.CPUDevice()}))
		},
	} {
		assert.EqualError(t, make(), want)
	}
}

// borrowedOnly returns the batch that a reader or Map lent, after that.
func borrowedOnly(t *testing.T, lend func(*cdevice.RecordReader, *[]*cdevice.RecordBatch)) *cdevice.RecordBatch {
	t.Helper()
	r := counting(t, 0, 1)
	defer r.Release()
	var kept []*cdevice.RecordBatch
	lend(r, &kept)
	require.Len(t, kept, 2)
	return kept[0]
}

func TestBorrowedBatchThatIsKept(t *testing.T) {
	checkLeaks(t)
	for name, lend := range map[string]func(*cdevice.RecordReader, *[]*cdevice.RecordBatch){
		"All": func(r *cdevice.RecordReader, kept *[]*cdevice.RecordBatch) {
			for b := range r.All() {
				*kept = append(*kept, b)
			}
		},
		"Next": func(r *cdevice.RecordReader, kept *[]*cdevice.RecordBatch) {
			for r.Next() {
				*kept = append(*kept, r.RecordBatch())
			}
		},
		"Map": func(r *cdevice.RecordReader, kept *[]*cdevice.RecordBatch) {
			r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
				*kept = append(*kept, b)
				return b.Slice(0, 1)
			})
			for range r.All() {
			}
		},
	} {
		b := borrowedOnly(t, lend)
		const why = "invalid: already released: what a reader yields (All, Next, Map) is borrowed: Retain keeps it"
		var out cdevice.CArrowDeviceArray
		for operation, err := range map[string]error{
			"read":   second(b.HostView(background)),
			"slice":  second(b.Slice(0, 1)),
			"export": cdevice.ExportRecordBatch(b, &out, nil),
		} {
			assert.EqualError(t, err, "cdevice: "+operation+": RecordBatch: "+why, name)
			assert.ErrorIs(t, err, cdevice.ErrReleased)
		}
		assert.PanicsWithError(t, "cdevice: RecordBatch: Retain after the last Release: "+why, b.Retain, name)
	}
	own := numberedBatch(t, 1)
	own.Release()
	assert.EqualError(t, second(own.HostView(background)), "cdevice: read: RecordBatch: invalid: already released")
}

func TestColumnThatIsMissing(t *testing.T) {
	checkLeaks(t)
	b := wrap(t, twoColumns(t))
	for _, i := range []int{-1, 2, 7} {
		assert.PanicsWithError(t, "cdevice: column: i = "+fmt.Sprint(i)+", want an index of the 2 columns: invalid", func() { b.Column(i) })
	}
	a := b.Column(0)
	defer a.Release()
	assert.PanicsWithError(t, "cdevice: column: i = 7, want an index of the 0 child arrays: invalid", func() { a.Child(7) })
}

// twoStructs has exported structs, and the memory behind them that an import reads of a larger one.
type twoStructs[A, B any] struct {
	a A
	_ [32]uintptr
	b B
	_ [32]uintptr
}

// assertNotTaken checks that an error has left the structs to the caller.
func assertNotTaken[A, B cdevice.CStruct](t *testing.T, s *twoStructs[A, B]) {
	t.Helper()
	before := cdevice.ReadStats()
	cdevice.ReleaseStruct(&s.a)
	cdevice.ReleaseStruct(&s.b)
	assert.NotEqual(t, before, cdevice.ReadStats(), "they were still exported")
}

func TestArrayAndSchemaExchanged(t *testing.T) {
	checkLeaks(t)
	none := wrap(t, columnsOf(memory.DefaultAllocator, 0, 0, false))
	for name, batch := range map[string]*cdevice.RecordBatch{"rows": wrap(t, twoColumns(t)), "no columns": none} {
		var d twoStructs[cdevice.CArrowDeviceArray, cdata.CArrowSchema]
		require.NoError(t, cdevice.ExportRecordBatch(batch, &d.a, &d.b))
		const want = " = an ArrowSchema, want an array: exchange the two addresses; neither struct was taken: invalid"
		_, err := cdevice.ImportRecordBatch((*cdevice.CArrowDeviceArray)(unsafe.Pointer(&d.b)), (*cdata.CArrowSchema)(unsafe.Pointer(&d.a)))
		assert.EqualError(t, err, "cdevice: import: ArrowDeviceArray"+want, name)
		_, err = cdevice.ImportArray((*cdevice.CArrowDeviceArray)(unsafe.Pointer(&d.b)), (*cdata.CArrowSchema)(unsafe.Pointer(&d.a)))
		assert.EqualError(t, err, "cdevice: import: ArrowDeviceArray"+want, name)
		_, err = cdevice.ImportRecordBatch((*cdata.CArrowArray)(unsafe.Pointer(&d.b)), (*cdata.CArrowSchema)(unsafe.Pointer(&d.a)))
		assert.EqualError(t, err, "cdevice: import: ArrowArray"+want, name)
		assertNotTaken(t, &d)
	}
}

func TestDictionaryArrayAndSchemaExchanged(t *testing.T) {
	checkLeaks(t)
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	a, err := cdevice.WrapArray(fromJSON(t, dt, `["a","b",null,"a"]`), device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	var d twoStructs[cdata.CArrowArray, cdata.CArrowSchema]
	require.NoError(t, cdevice.ExportArray(a, &d.a, &d.b))
	_, err = cdevice.ImportArray((*cdata.CArrowArray)(unsafe.Pointer(&d.b)), (*cdata.CArrowSchema)(unsafe.Pointer(&d.a)))
	assert.ErrorContains(t, err, "ArrowArray = an ArrowSchema, want an array: exchange the two addresses")
	assertNotTaken(t, &d)

	// A schema that was used twice is released, and no mistake of addresses: the array is released.
	var s cdata.CArrowSchema
	_, err = cdevice.ImportArray(&d.a, &s)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	require.NoError(t, cdevice.ExportArray(a, &d.a, nil))
	_, err = cdevice.ImportArray(&d.a, &s)
	assert.EqualError(t, err, "cdevice: import: ArrowSchema.release = NULL: invalid: already released, or never filled")
}

func TestStreamOfTheOtherInterface(t *testing.T) {
	checkLeaks(t)
	r := asked(t, nil, numbered(t, 1)...)
	defer r.Release()
	var s twoStructs[cdevice.CArrowDeviceArrayStream, cdata.CArrowArrayStream]
	require.NoError(t, cdevice.ExportRecordReader(r, &s.a))
	require.NoError(t, cdevice.ExportRecordReader(r, &s.b))
	_, err := cdevice.ImportRecordReader((*cdata.CArrowArrayStream)(unsafe.Pointer(&s.a)))
	assert.EqualError(t, err, "cdevice: import: ArrowArrayStream.get_schema = 0x1, want a callback; "+
		"if it is an ArrowDeviceArrayStream, DeviceArrayStreamFromPtr; it was not taken: invalid")
	_, err = cdevice.ImportRecordReader((*cdevice.CArrowDeviceArrayStream)(unsafe.Pointer(&s.b)))
	assert.ErrorContains(t, err, "cdevice: import: ArrowDeviceArrayStream.device_type = ")
	assert.ErrorContains(t, err, ", want the type of a device; if it is an ArrowArrayStream, ArrayStreamFromPtr; it was not taken: invalid")
	assertNotTaken(t, &s)
}

func TestColumnIndex(t *testing.T) {
	checkLeaks(t)
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "city", Type: arrow.BinaryTypes.String}, {Name: "km", Type: arrow.PrimitiveTypes.Int32},
		{Name: "twice", Type: arrow.PrimitiveTypes.Int32}, {Name: "twice", Type: arrow.PrimitiveTypes.Int32},
	}, nil)
	two := wrap(t, twoColumns(t))
	n, text := two.Column(0), two.Column(1)
	defer n.Release()
	defer text.Release()
	b, err := cdevice.RecordBatchFromArrays(schema, text, n, n, n)
	require.NoError(t, err)
	defer b.Release()
	i, err := b.ColumnIndex("km")
	require.NoError(t, err)
	assert.Equal(t, 1, i)
	for name, want := range map[string]string{
		"k\nm":  `cdevice: column: name = "k\nm", want a name that one column has, of "city", "km", "twice", "twice": key error`,
		"twice": `cdevice: column: name = "twice", want a name that 2 columns do not share: key error`,
	} {
		_, err = b.ColumnIndex(name)
		assert.EqualError(t, err, want)
		assert.ErrorIs(t, err, arrow.ErrKey)
	}
	wide := wrap(t, columnsOf(memory.DefaultAllocator, 30, 1, false))
	_, err = wide.ColumnIndex("km")
	assert.ErrorContains(t, err, ", 10 more: key error")
}

// Objects of arrow-go that were released have lost their columns or data.
func TestWrapOfReleasedObjects(t *testing.T) {
	checkLeaks(t)
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil), []arrow.Array{numbers(t, 16)}, 2)
	rec.Release()
	assert.EqualError(t, second(cdevice.WrapRecordBatch(rec, device.CPUDevice())), "cdevice: wrap: RecordBatch: invalid: already released: it has no columns any more")
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]int64{1, 2}, nil)
	arr := b.NewArray()
	held := array.NewRecordBatch(rec.Schema(), []arrow.Array{arr}, 2)
	arr.Release()
	arr.Release()
	const want = ": invalid: already released: it has no data any more"
	assert.EqualError(t, second(cdevice.WrapArray(arr, device.CPUDevice())), "cdevice: wrap: Array"+want)
	assert.EqualError(t, second(cdevice.WrapRecordBatch(held, device.CPUDevice())), "cdevice: wrap: column[0]"+want)
}
