package cdevice_test

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// liveKinds returns the kinds of the listed objects, and the maker of the first of them.
func liveKinds() (kinds []string, maker string) {
	for i, o := range cdevice.LiveObjects() {
		kinds = append(kinds, o.Kind)
		if i == 0 {
			maker = o.Stack[0].Function
		}
	}
	return kinds, maker
}

// While objects are traced, each exported schema is listed until its release. It is not one of
// the exported arrays.
func TestExportedSchemasAreTraced(t *testing.T) {
	checkLeaks(t)
	defer cdevice.Trace(cdevice.Trace(true))
	field := arrow.Field{Name: "x", Type: arrow.StructOf(arrow.Field{Name: "y", Type: arrow.PrimitiveTypes.Int64})}
	schema := arrow.NewSchema([]arrow.Field{field}, nil)
	for name, export := range map[string]func(*cdata.CArrowSchema) error{
		"ExportSchema": func(out *cdata.CArrowSchema) error { return cdevice.ExportSchema(schema, out) },
		"ExportField":  func(out *cdata.CArrowSchema) error { return cdevice.ExportField(field, out) },
		"ExportRecordBatch": func(out *cdata.CArrowSchema) error {
			b, err := cdevice.NewRecordBatch(device.CPUDevice(), arrow.NewSchema(nil, nil), 0, nil, cdevice.Lifetime{})
			require.NoError(t, err)
			defer b.Release()
			arr := new(cdevice.CArrowDeviceArray)
			defer cdevice.ReleaseStruct(arr)
			return cdevice.ExportRecordBatch(b, arr, out)
		},
		"GetSchema": func(out *cdata.CArrowSchema) error {
			r, err := cdevice.NewRecordReader(schema, device.CPU, func(func(*cdevice.RecordBatch, error) bool) {})
			require.NoError(t, err)
			stream := new(cdevice.CArrowDeviceArrayStream)
			require.NoError(t, cdevice.ExportRecordReader(r, stream))
			r.Release()
			defer cdevice.ReleaseStruct(stream)
			require.Zero(t, bridge.CallGetSchema(abi.As[abi.ArrowDeviceArrayStream](stream), (*abi.ArrowSchema)(unsafe.Pointer(out))))
			return nil
		},
	} {
		before := cdevice.ReadStats()
		out := garbageSchema()
		require.NoError(t, export(out), name)
		kinds, maker := liveKinds()
		assert.Equal(t, []string{"exported ArrowSchema"}, kinds, name)
		assert.True(t, strings.Contains(maker, "/cdevice."), "%s: %s", name, maker)
		after := cdevice.ReadStats()
		assert.Equal(t, before.ExportedBlocks+1, after.ExportedBlocks)
		assert.Equal(t, before.ExportedArrays, after.ExportedArrays)
		cdevice.ReleaseStruct(out)
		assert.Equal(t, before, cdevice.ReadStats(), name)
		assert.Empty(t, cdevice.LiveObjects(), name)
	}

	cdevice.Trace(false)
	out := garbageSchema()
	require.NoError(t, cdevice.ExportSchema(schema, out))
	assert.Empty(t, cdevice.LiveObjects())
	cdevice.ReleaseStruct(out)
}
