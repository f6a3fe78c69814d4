package cdevice_test

import (
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Structs of the C data interface, without a device.

func TestPlainArrayRoundTripIsEqual(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()
		back := throughPlain(t, a)
		require.NoError(t, back.ValidateFull(background))
		defer back.Release()
		assert.True(t, arrow.TypeEqual(arr.DataType(), back.DataType(), arrow.CheckMetadata()))
		assert.Equal(t, device.CPUDevice().ID(), back.DeviceID())
		sameOnHost(t, arr, back)
	})
}

func TestPlainRecordBatchRoundTripIsEqual(t *testing.T) {
	eachCase(t, func(t *testing.T, arr arrow.Array) {
		metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
		schema := arrow.NewSchema([]arrow.Field{
			{Name: "a", Type: arr.DataType(), Nullable: true, Metadata: metadata},
			{Name: "b", Type: arr.DataType(), Nullable: true},
		}, &metadata)
		rec := array.NewRecordBatch(schema, []arrow.Array{arr, arr}, int64(arr.Len()))
		defer rec.Release()
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		defer b.Release()

		out, outSchema := garbagePlain(), garbageSchema()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, outSchema))
		back, err := validated(cdevice.ImportRecordBatch(out, outSchema))
		require.NoError(t, err)
		defer back.Release()
		assert.True(t, schema.Equal(back.Schema()), "want %s\n got %s", schema, back.Schema())
		assert.True(t, schema.Metadata().Equal(back.Schema().Metadata()))
		view, err := back.HostView(background)
		require.NoError(t, err)
		defer view.Release()
		require.EqualValues(t, arr.Len(), view.NumRows())
		assertEqualArrays(t, arr, view.Column(0))
		assertEqualArrays(t, arr, view.Column(1))
	})
}

// pair is a batch of two columns, as a struct whose second child is nested.
func pair(t *testing.T) arrow.RecordBatch {
	t.Helper()
	points := fromJSON(t, pointType, `[{"x":1,"s":"a"},{"x":2,"s":"b"}]`)
	numbers := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null]`)
	fields := []arrow.Field{{Name: "n", Type: numbers.DataType(), Nullable: true}, {Name: "p", Type: pointType, Nullable: true}}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), []arrow.Array{numbers, points}, 2)
	t.Cleanup(rec.Release)
	return rec
}

// cdata gives the rows 4, 5, 6, 7 in place of 2, 3, 4, 5 (docs/upstream.md, 01).
func TestPlainSlicedStructKeepsItsRows(t *testing.T) {
	checkLeaks(t)
	rows := fromJSON(t, arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true}),
		`[{"x":0},{"x":1},{"x":2},{"x":3},{"x":4},{"x":5},{"x":6},{"x":7},{"x":8},{"x":9}]`)
	const want = `[{"x":2},{"x":3},{"x":4},{"x":5}]`

	whole := wrap(t, oneColumn(t, rows))
	part, err := whole.Slice(2, 6)
	require.NoError(t, err)
	defer part.Release()
	theirs := oneColumn(t, rows).NewSlice(2, 6)
	t.Cleanup(theirs.Release)
	for name, b := range map[string]*cdevice.RecordBatch{"sliced here": part, "sliced by arrow-go": wrap(t, theirs)} {
		out, schema := garbagePlain(), garbageSchema()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, schema), name)
		back, err := validated(cdevice.ImportRecordBatch(out, schema))
		require.NoError(t, err, name)
		view, err := back.HostView(background)
		require.NoError(t, err, name)
		assert.Equal(t, want, marshal(t, view.Column(0)), name)
		view.Release()
		back.Release()
	}

	column := part.Column(0)
	defer column.Release()
	back := throughPlain(t, column)
	require.NoError(t, back.ValidateFull(background))
	defer back.Release()
	view, err := back.HostView(background)
	require.NoError(t, err)
	defer view.Release()
	assert.Equal(t, want, marshal(t, view))
}

func TestPlainBatchWithoutColumnsKeepsItsRows(t *testing.T) {
	checkLeaks(t)
	rec := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 7)
	defer rec.Release()
	out, schema := garbagePlain(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(wrap(t, rec), out, schema))
	back, err := cdevice.ImportRecordBatch(out, schema)
	require.NoError(t, err)
	defer back.Release()
	assert.EqualValues(t, 7, back.NumRows())
	assert.Zero(t, back.NumCols())
}

// The exported struct is that of the device export, and ends with its last member.
func TestPlainExportIsTheArrayOfADeviceExport(t *testing.T) {
	checkLeaks(t)
	b := wrap(t, pair(t))
	both := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, cdevice.ArrayFromPtr(addressOf(&both.Array)), nil))
	defer cdevice.ReleaseStruct(both)
	untouched := garbageArray()
	untouched.Array = both.Array
	assert.Equal(t, *untouched, *both, "nothing is written behind an ArrowArray")

	out := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	defer cdevice.ReleaseStruct(out)
	for i := range 2 {
		want, got := *abi.At[abi.ArrowArray](children(abi.As[abi.ArrowArray](&out.Array))[i]), *abi.At[abi.ArrowArray](children(abi.As[abi.ArrowArray](&both.Array))[i])
		want.PrivateData, got.PrivateData, want.Children, got.Children = 0, 0, 0, 0
		assert.Equal(t, want, got)
	}
	assert.Equal(t, out.Array.Release, both.Array.Release)
}

func TestPlainExportNamesItsArguments(t *testing.T) {
	checkLeaks(t)
	b := wrap(t, pair(t))
	a := b.Column(0)
	defer a.Release()
	gone := b.Column(1)
	gone.Release()
	released, err := b.Slice(0, 1)
	require.NoError(t, err)
	released.Release()
	out, schema := garbagePlain(), garbageSchema()
	for want, err := range map[string]error{
		"cdevice: export: RecordBatch = nil, want a batch: invalid":       cdevice.ExportRecordBatch(nil, out, schema),
		"cdevice: export: Array = nil, want an array: invalid":            cdevice.ExportArray(nil, out, schema),
		"cdevice: export: ArrowArray = NULL, want a struct to fill":       cdevice.ExportRecordBatch(b, (*cdata.CArrowArray)(nil), schema),
		"cdevice: export: ArrowArray = NULL, want a struct to fill: inva": cdevice.ExportArray(a, (*cdata.CArrowArray)(nil), schema),
		"cdevice: export: RecordBatch: invalid: already released":         cdevice.ExportRecordBatch(released, out, schema),
		"cdevice: export: Array: invalid: already released":               cdevice.ExportArray(gone, out, schema),
	} {
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out), "written only on success")
	assert.Equal(t, *garbageSchema(), *schema)
}

func TestPlainExportWithoutMemoryWritesNothing(t *testing.T) {
	checkLeaks(t)
	columns, fields := make([]arrow.Array, 100), make([]arrow.Field, 100)
	for i := range columns {
		columns[i] = fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)
		fields[i] = arrow.Field{Type: arrow.PrimitiveTypes.Int32}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)
	defer rec.Release()
	b := wrap(t, rec)
	before := cdevice.ReadStats()
	for _, limit := range []uintptr{0, 8800} { // the second lets the schema through; see TestNoMemoryForTheStructs
		out, schema := garbagePlain(), garbageSchema()
		restore := bridge.LimitBlocks(limit)
		withSchema := cdevice.ExportRecordBatch(b, out, schema)
		without := cdevice.ExportRecordBatch(b, out, nil)
		restore()
		assert.ErrorIs(t, withSchema, syscall.ENOMEM)
		assert.ErrorIs(t, without, syscall.ENOMEM)
		assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out))
		assert.Equal(t, *garbageSchema(), *schema)
		assert.Equal(t, before, cdevice.ReadStats())
	}
}

func TestPlainChildrenOutliveTheirParent(t *testing.T) {
	checkLeaks(t)
	b, err := cdevice.WrapRecordBatch(pair(t), device.CPUDevice())
	require.NoError(t, err)
	out := garbagePlain()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	b.Release()
	before := cdevice.ReadStats()
	column := moveOutPlain(children(plainArray(out))[1])
	grandchild := moveOutPlain(children(plainArray(column))[1])
	require.NoError(t, cpeer.ReleaseOnThread(plainArray(out)))
	assert.Zero(t, plainArray(out).Release)
	assert.Equal(t, before, cdevice.ReadStats(), "moved-out structs keep the block")
	cdevice.ReleaseStruct(column)
	cdevice.ReleaseStruct(column) // sees NULL
	assert.Equal(t, before, cdevice.ReadStats(), "the grandchild still does")
	a, err := validated(cdevice.ImportArrayWithType(grandchild, arrow.BinaryTypes.String))
	require.NoError(t, err)
	view, err := a.HostView(background)
	require.NoError(t, err)
	assert.Equal(t, `["a","b"]`, marshal(t, view))
	view.Release()
	a.Release()
}

// moveOutPlain takes a struct out of its tree; see moveOut.
func moveOutPlain(addr uintptr) *cdata.CArrowArray {
	a := abi.At[abi.ArrowArray](addr)
	moved := *a
	a.Release = 0
	return cdevice.ArrayFromPtr(addressOf(&moved))
}

func TestReleaseOfNoPlainStruct(t *testing.T) {
	cdevice.ReleaseStruct((*cdata.CArrowArray)(nil))
	cdevice.ReleaseStruct(new(cdata.CArrowArray))
	cdevice.ReleaseStruct((*cdata.CArrowArrayStream)(nil))
	cdevice.ReleaseStruct(new(cdata.CArrowArrayStream))
	assert.Nil(t, cdevice.ArrayFromPtr(0))
	assert.Nil(t, cdevice.ArrayStreamFromPtr(0))
}

// A producer's struct is released once, by the last user, through the function of WithReleaser.
func TestPlainImportOptions(t *testing.T) {
	checkLeaks(t)
	for _, w := range []way{asArray, asBatch} {
		f := foreignCase(t, "struct_nested", w)
		f.plain = true
		calls := 0
		got, err := validated(f.importKnown(cdevice.WithDevice(device.CPUDevice()),
			cdevice.WithReleaser(func(release func()) { calls++; release() })))
		require.NoError(t, err)
		assert.Zero(t, f.counts[0])
		got.Release()
		assertReleased(t, f, 1)
		assert.Equal(t, 1, calls)

		f.restore()
		got, err = f.importKnown(cdevice.WithDevice(gpuOnly{device.CPUDevice()}), cdevice.WithReleaser(func(release func()) { calls++; release() }))
		assert.Nil(t, got)
		assert.EqualError(t, err, "cdevice: import: WithDevice = cuda:3, want the CPU, where the memory of an ArrowArray is: invalid")
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assertReleased(t, f, 1)
		assert.Equal(t, 2, calls)
		f.free()
	}
}

// A plain struct carries the names of extension types, registered or not.
func TestPlainExtensionTypes(t *testing.T) {
	checkLeaks(t)
	require.NoError(t, arrow.RegisterExtensionType(&tagged{}))
	arr := asTagged(t, fromJSON(t, arrow.BinaryTypes.String, `["a",null]`))
	defer arr.Release()
	a, err := cdevice.WrapArray(arr, device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	known := throughPlain(t, a)
	defer known.Release()
	require.NoError(t, arrow.UnregisterExtensionType("arrowdevice.test.tagged"))
	assert.True(t, arrow.TypeEqual(arr.DataType(), known.DataType()))
	unknown := throughPlain(t, a)
	defer unknown.Release()
	assert.True(t, arrow.TypeEqual(arrow.BinaryTypes.String, unknown.DataType()), "its storage")
	name, found := unknown.Field().Metadata.GetValue("ARROW:extension:name")
	assert.True(t, found)
	assert.Equal(t, "arrowdevice.test.tagged", name)
}
