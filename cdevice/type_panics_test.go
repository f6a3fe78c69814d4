package cdevice_test

import (
	"context"
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
			return view[arrow.RecordBatch](cdevice.ImportRecordBatchWithSchema(out, schema))
		},
		"array": func(out *cdevice.CArrowDeviceArray, n int64) error {
			require.NoError(t, cdevice.ExportArray(values, out, nil))
			left.Store(n)
			return view[arrow.Array](cdevice.ImportArrayWithType(out, dt))
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

// viewed is an import that has a host view.
type viewed[V interface{ Release() }] interface {
	Release()
	HostView(context.Context) (V, error)
}

// view takes a host view of an import.
func view[V interface{ Release() }, T viewed[V]](item T, err error) error {
	if err != nil {
		return err
	}
	defer item.Release()
	v, err := item.HostView(background)
	if err != nil {
		return err
	}
	v.Release()
	return nil
}
