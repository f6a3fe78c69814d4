package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/panictype"
)

// An extension type is code of the program. If the n-th call of it panics, or that and a later one, an import and a host
// view return an error or all the same a right value, and lose nothing.
func TestPanicsOfExtensionTypes(t *testing.T) {
	checkLeaks(t)
	var calls, first, second int
	list := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	dt := panictype.New(list, func() bool {
		calls++
		return calls == first || calls == second
	})
	storage := fromJSON(t, list, `[[1, 2], null, [3]]`)
	column := array.NewExtensionArrayWithStorage(dt, storage)
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: dt, Nullable: true}}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{column}, 3)
	defer rec.Release()
	b := kept(cdevice.WrapRecordBatch(rec, device.CPUDevice()))(t)
	values := kept(cdevice.WrapArray(column, device.CPUDevice()))(t)

	for name, item := range map[string]struct {
		export func(*cdevice.CArrowDeviceArray) error
		use    func(*cdevice.CArrowDeviceArray) error
	}{
		"batch": {
			func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportRecordBatch(b, out, nil) },
			func(out *cdevice.CArrowDeviceArray) error {
				fresh := arrow.NewSchema(schema.Fields(), nil) // of which no import has a plan
				return view[arrow.RecordBatch](cdevice.ImportRecordBatchWithSchema(out, fresh))
			},
		},
		"array": {
			func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportArray(values, out, nil) },
			func(out *cdevice.CArrowDeviceArray) error {
				return view[arrow.Array](cdevice.ImportArrayWithType(out, dt))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := cdevice.ReadStats()
			// use returns what the calls at which the type panics make of an import and its host view, and how many were made.
			use := func(at, again int) (made int, err error) {
				out := new(cdevice.CArrowDeviceArray)
				require.NoError(t, item.export(out))
				calls, first, second = 0, at, again
				assert.NotPanics(t, func() { err = item.use(out) }, "calls %d and %d panic", at, again)
				made, first, second = calls, 0, 0
				require.Equal(t, before, cdevice.ReadStats(), "calls %d and %d panic", at, again)
				return made, err
			}
			all, err := use(0, 0)
			require.NoError(t, err)
			assert.Positive(t, all)
			refused := 0
			for at := 1; at <= all; at++ {
				made, err := use(at, 0)
				for again := at + 1; again <= made; again++ {
					if _, err := use(at, again); err != nil {
						require.ErrorContains(t, err, "no method", "calls %d and %d panic", at, again)
					}
				}
				if err != nil { // else it was one that looks whether a plan fits
					require.ErrorContains(t, err, "no method", "call %d panics", at)
					refused++
				}
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
