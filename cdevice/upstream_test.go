package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Each test here is a finding of docs/upstream.md: a defect of arrow-go's cdata that this package
// must not have.

// batchThroughC exports rec to a device struct, imports it and views the import; all is released at the end.
func batchThroughC(t *testing.T, rec arrow.RecordBatch) arrow.RecordBatch {
	t.Helper()
	return viewThrough(t, deviceKind, wrap(t, rec))
}

// viewThrough exports b, imports it and views the import; all but b is released at the end.
func viewThrough(t *testing.T, k kind, b *cdevice.RecordBatch) arrow.RecordBatch {
	t.Helper()
	out, schema := k.newArray(), garbageSchema()
	require.NoError(t, out.exportBatch(b, schema))
	back, err := validated(out.importBatch(schema))
	require.NoError(t, err)
	t.Cleanup(back.Release)
	return viewOf(t, back)
}

// cdata gives the rows 2, 3, 4 in place of 1, 2, 3.
func TestSlicedStructColumnKeepsItsRows(t *testing.T) {
	rec := oneColumn(t, fromJSON(t, pointType, `[{"x":0,"s":"a"},{"x":1,"s":"b"},{"x":2,"s":"c"},{"x":3,"s":"d"},{"x":4,"s":"e"}]`))
	const want = `[{"s":"b","x":1},{"s":"c","x":2},{"s":"d","x":3}]`
	theirs := rec.NewSlice(1, 4)
	t.Cleanup(theirs.Release)
	eachKind(t, func(t *testing.T, k kind) {
		part := kept(wrap(t, rec).Slice(1, 4))(t)
		for name, b := range map[string]*cdevice.RecordBatch{"sliced here": part, "sliced by arrow-go": wrap(t, theirs)} {
			assert.Equal(t, want, marshal(t, viewThrough(t, k, b).Column(0)), name)
		}
		column := part.Column(0)
		t.Cleanup(column.Release)
		back := k.through(t, column)
		t.Cleanup(back.Release)
		view := kept(back.HostView(background))(t)
		assert.Equal(t, want, marshal(t, view))
	})
}

func TestSlicedSparseUnionColumnKeepsItsRows(t *testing.T) {
	checkLeaks(t)
	fields := []arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}
	rec := oneColumn(t, fromJSON(t, arrow.SparseUnionOf(fields, []arrow.UnionTypeCode{0, 1}), `[[0,1],[1,"two"],[0,3],[1,"four"]]`))
	part := rec.NewSlice(1, 3)
	t.Cleanup(part.Release)
	assert.Equal(t, `[[1,"two"],[0,3]]`, marshal(t, batchThroughC(t, part).Column(0)))
}

func TestViewSizesAreNotLeaked(t *testing.T) {
	checkLeaks(t)
	// The sizes lie in memory that the batch owns: no C allocation of their own.
	b := wrap(t, oneColumn(t, fromJSON(t, arrow.BinaryTypes.StringView, `["a text that is longer than twelve bytes"]`)))
	before := cdevice.ReadStats()
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportRecordBatch(b, &out, nil))
	assert.Equal(t, before.ExportedBlocks+1, cdevice.ReadStats().ExportedBlocks, "one allocation per export")
	cdevice.ReleaseStruct(&out)
	assert.Equal(t, before, cdevice.ReadStats())
}

func TestDictionaryOrderSurvives(t *testing.T) {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String, Ordered: true}
	view := batchThroughC(t, oneColumn(t, fromJSON(t, dt, `["a","b"]`)))
	assert.True(t, view.Schema().Field(0).Type.(*arrow.DictionaryType).Ordered)
}

func TestMapFieldsSurvive(t *testing.T) {
	metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
	dt := arrow.MapOfFields(
		arrow.Field{Name: "key", Type: arrow.BinaryTypes.String, Metadata: metadata},
		arrow.Field{Name: "value", Type: arrow.PrimitiveTypes.Int32, Nullable: false, Metadata: metadata})
	view := batchThroughC(t, oneColumn(t, fromJSON(t, dt, `[[{"key":"a","value":1}]]`)))
	got := view.Schema().Field(0).Type.(*arrow.MapType)
	assert.False(t, got.ItemField().Nullable)
	assert.True(t, got.ItemField().Metadata.Equal(metadata))
	assert.True(t, got.KeyField().Metadata.Equal(metadata))
}

func TestTopLevelStructNullsAreNotDropped(t *testing.T) {
	checkLeaks(t)
	arr := fromJSON(t, pointType, `[{"x":0,"s":"a"},null]`)
	a := kept(cdevice.WrapArray(arr, device.CPUDevice()))(t)

	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(a, out, schema))
	_, err := cdevice.ImportRecordBatch(out, schema)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "ArrowDeviceArray.array.null_count = 1, want 0 for a record batch")

	back := throughC(t, a)
	defer back.Release()
	assert.EqualValues(t, 1, back.NullCount(), "as an array the nulls are kept")
}

func TestReleasedInputIsAnError(t *testing.T) {
	checkLeaks(t)
	b := wrap(t, oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)))
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
	cdevice.ReleaseStruct(out)
	_, err := cdevice.ImportRecordBatch(out, schema)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	assert.Zero(t, (*abi.ArrowSchema)(abi.Pointer(addressOf(schema))).Release, "the schema is consumed all the same")
}

func TestUnknownNullCountWithoutBitmapIsNone(t *testing.T) {
	checkLeaks(t)
	a := kept(cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`), device.CPUDevice()))(t)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(a, out, schema))
	out.Array.NullCount = -1
	abi.Slice[uintptr](out.Array.Buffers, 2)[0] = 0
	back := kept(cdevice.ImportArray(out, schema))(t)
	assert.Zero(t, back.NullCount())
}

func TestExportReadsNoData(t *testing.T) {
	// A slice with an uncounted null count is exported as unknown; arrow-go's
	// own data is not written to either, so that exports may run side by side.
	arr := fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,null,3,4]`)
	part := array.NewSlice(arr, 1, 3)
	t.Cleanup(part.Release)
	a := kept(cdevice.WrapArray(part, device.CPUDevice()))(t)
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(a, &out, nil))
	defer cdevice.ReleaseStruct(&out)
	assert.EqualValues(t, -1, out.Array.NullCount)
	assert.Equal(t, array.UnknownNullCount, part.Data().NullN())
}

func TestShortChildIsAnError(t *testing.T) {
	checkLeaks(t)
	a := kept(cdevice.WrapArray(fromJSON(t, pointType, `[{"x":0,"s":"a"},{"x":1,"s":"b"}]`), device.CPUDevice()))(t)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(a, out, schema))
	abi.At[abi.ArrowArray](abi.Slice[uintptr](out.Array.Children, 2)[1]).Length = 1
	_, err := cdevice.ImportArray(out, schema)
	assert.ErrorContains(t, err, "ArrowDeviceArray.array.children[1].length = 1, want at least 2")
}

func TestTypedNilDictionaryIsAnError(t *testing.T) {
	// array.Data.Dictionary returns a non-nil interface that holds nil.
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	index := fromJSON(t, arrow.PrimitiveTypes.Int8, `[0]`)
	data := array.NewData(dt, 1, index.Data().Buffers(), nil, 0, 0)
	defer data.Release()
	_, err := cdevice.WrapArray(dataOnly{index, data}, device.CPUDevice())
	assert.ErrorContains(t, err, "cdevice: wrap: array.dictionary")
}

// cdata's release callback is Go and passes the struct to C: the struct's allocation must hold no
// Go pointer then, even if the import keeps state.
func TestCdataReleasesWhatWasImportedWithOptions(t *testing.T) {
	checkLeaks(t)
	rec := outsideTheHeap(t)
	stream, err := device.CPUDevice().NewStream()
	require.NoError(t, err)
	for name, use := range map[string]func(in *cdevice.CArrowDeviceArray) (*cdevice.RecordBatch, error){
		"WithReleaser": func(in *cdevice.CArrowDeviceArray) (*cdevice.RecordBatch, error) {
			keeps := new(int)
			return cdevice.ImportRecordBatchWithSchema(in, rec.Schema(), cdevice.WithReleaser(func(release func()) { *keeps++; release() }))
		},
		"UsedOn": func(in *cdevice.CArrowDeviceArray) (*cdevice.RecordBatch, error) {
			b, err := cdevice.ImportRecordBatchWithSchema(in, rec.Schema())
			if err == nil {
				err = b.UsedOn(stream)
			}
			return b, err
		},
		"NULL buffers": func(in *cdevice.CArrowDeviceArray) (*cdevice.RecordBatch, error) {
			column := abi.At[abi.ArrowArray](children(abi.As[abi.ArrowArray](&in.Array))[0])
			column.Length, column.NullCount, in.Array.Length = 0, 0, 0
			abi.Slice[uintptr](column.Buffers, 3)[1] = 0
			return cdevice.ImportRecordBatchWithSchema(in, rec.Schema())
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := new(cdevice.CArrowDeviceArray)
			in.DeviceID, in.DeviceType = -1, int32(device.CPU)
			cdata.ExportArrowRecordBatch(rec, (*cdata.CArrowArray)(abi.Pointer(addressOf(&in.Array))), nil)
			b, err := use(in)
			require.NoError(t, err)
			assert.NotPanics(t, b.Release)
		})
	}
}
