package cdevice_test

import (
	"math"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/panictype"
)

// An extension type is code of the program. If the n-th call of it panics, an import and a host view return an error, and
// lose nothing.
func TestPanicsOfExtensionTypes(t *testing.T) {
	checkLeaks(t)
	var left atomic.Int64
	list := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	dt := panictype.New(list, &left)
	storage := fromJSON(t, list, `[[1, 2], null, [3]]`)
	column := array.NewExtensionArrayWithStorage(dt, storage)
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: dt, Nullable: true}}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{column}, 3)
	defer rec.Release()
	b := kept(cdevice.WrapRecordBatch(rec, device.CPUDevice()))(t)
	values := kept(cdevice.WrapArray(column, device.CPUDevice()))(t)

	for name, use := range map[string]func(out *cdevice.CArrowDeviceArray, n int64) error{
		"batch": func(out *cdevice.CArrowDeviceArray, n int64) error {
			require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
			left.Store(n)
			return useBatch(out, schema)
		},
		"array": func(out *cdevice.CArrowDeviceArray, n int64) error {
			require.NoError(t, cdevice.ExportArray(values, out, nil))
			left.Store(n)
			return useArray(out, dt)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, refused := cdevice.ReadStats(), 0
			for n := int64(0); ; n++ {
				var err error
				assert.NotPanics(t, func() { err = use(new(cdevice.CArrowDeviceArray), n) }, "call %d panics", n)
				left.Store(math.MaxInt64)
				require.Equal(t, before, cdevice.ReadStats(), "call %d panics", n)
				if err == nil {
					break
				}
				assert.ErrorContains(t, err, "no method", "call %d", n)
				refused++
			}
			assert.Positive(t, refused)
		})
	}
}

func useBatch(out *cdevice.CArrowDeviceArray, schema *arrow.Schema) error {
	back, err := cdevice.ImportRecordBatchWithSchema(out, schema)
	if err != nil {
		return err
	}
	defer back.Release()
	view, err := back.HostView(background)
	if err != nil {
		return err
	}
	view.Release()
	return nil
}

func useArray(out *cdevice.CArrowDeviceArray, dt arrow.DataType) error {
	back, err := cdevice.ImportArrayWithType(out, dt)
	if err != nil {
		return err
	}
	defer back.Release()
	view, err := back.HostView(background)
	if err != nil {
		return err
	}
	view.Release()
	return nil
}
