//go:build cgo && linux

package callocfail_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// tables are record batches, which end with the test.
func tables(t *testing.T) map[string]arrow.RecordBatch {
	wide := make([]string, 300)
	for i := range wide {
		wide[i] = "int64"
	}
	return map[string]arrow.RecordBatch{
		"one column":    table(t, "int64"),
		"300 columns":   table(t, wide...),
		"of every kind": table(t, allCases()...),
	}
}

func allCases() (names []string) {
	for _, c := range cases.All() {
		names = append(names, c.Name)
	}
	return names
}

// table is a batch of columns of the named cases, and of metadata. It ends with the test, with all of its memory.
func table(t *testing.T, names ...string) arrow.RecordBatch {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	t.Cleanup(func() { mem.AssertSize(t, 0) })
	all := map[string]cases.Case{}
	for _, c := range cases.All() {
		all[c.Name] = c
	}
	metadata := arrow.NewMetadata([]string{"key"}, []string{strings.Repeat("value", 100)})
	var fields []arrow.Field
	var columns []arrow.Array
	for i, name := range names {
		whole, err := all[name].Array(mem, cases.Valid)
		require.NoError(t, err, name)
		columns = append(columns, array.NewSlice(whole, 0, 4))
		fields = append(fields, arrow.Field{Name: fmt.Sprint(name, i), Type: whole.DataType(), Nullable: true, Metadata: metadata})
		whole.Release()
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, &metadata), columns, 4)
	for _, c := range columns {
		c.Release()
	}
	t.Cleanup(rec.Release)
	return rec
}

// maker makes a batch of rec, for the caller to release.
type maker func(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordBatch

var kinds = map[string]maker{"wrapped": wrapped, "imported": imported, "joined": joined}

func wrapped(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordBatch {
	t.Helper()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	return b
}

// imported is an import of an export of rec: its columns are not those of arrow-go.
func imported(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordBatch {
	t.Helper()
	b := wrapped(t, rec)
	defer b.Release()
	out, schema := new(cdevice.CArrowDeviceArray), new(cdata.CArrowSchema)
	require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
	in, err := cdevice.ImportRecordBatch(out, schema)
	require.NoError(t, err)
	return in
}

// joined is a batch of the columns of rec.
func joined(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordBatch {
	t.Helper()
	b := wrapped(t, rec)
	defer b.Release()
	columns := make([]*cdevice.Array, b.NumCols())
	for i := range columns {
		columns[i] = b.Column(i)
		defer columns[i].Release()
	}
	of, err := cdevice.RecordBatchFromArrays(rec.Schema(), columns...)
	require.NoError(t, err)
	return of
}

const garbageWord = 0xa5a5a5a5a5a5a5a5

func addressOf[T any](p *T) uintptr { return heap.Address(p) }

// garbage is a struct that is to be filled.
func garbage[S any]() *S {
	words := make([]uint64, unsafe.Sizeof(*new(S))/8)
	for i := range words {
		words[i] = garbageWord
	}
	return (*S)(unsafe.Pointer(&words[0]))
}

// untouched asserts that a struct is as garbage made it.
func untouched[S any](r *trial, out *S) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(out)), unsafe.Sizeof(*out)/8)
	for i, word := range words {
		assert.EqualValues(r, uint64(garbageWord), word, "word %d of %T", i, out)
	}
}

// exported runs an export with structs that hold garbage. Without an error, it checks them and keeps them; with one, they are as
// they were.
func exported[S cdevice.ArrayStruct](r *trial, want arrow.RecordBatch, export func(*S, *cdata.CArrowSchema) error) error {
	out, schema := garbage[S](), garbage[cdata.CArrowSchema]()
	if err := r.during(func() error { return export(out, schema) }); err != nil {
		untouched(r, out)
		untouched(r, schema)
		return err
	}
	b, err := cdevice.ImportRecordBatch(out, schema)
	require.NoError(r, err)
	r.keep(b.Release)
	same(r, want, b)
	return nil
}

// same asserts that the batch is rec.
func same(r *trial, rec arrow.RecordBatch, b *cdevice.RecordBatch) {
	view, err := b.HostView(context.Background())
	require.NoError(r, err)
	defer view.Release()
	assert.True(r, array.RecordEqual(rec, view), "%v", view)
	assert.True(r, rec.Schema().Equal(view.Schema()), "%v", view.Schema())
}

// eachKind runs an operation with the structs of each C interface.
func eachKind(t *testing.T, name string, least int, ofDevice, plain func(*trial) error) {
	t.Run(name+"/device", func(t *testing.T) { eachFails(t, least, ofDevice) })
	t.Run(name+"/plain", func(t *testing.T) { eachFails(t, least, plain) })
}

func TestEachAllocationOfAnExportedBatch(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		for kind, made := range kinds {
			eachKind(t, name+"/"+kind, 2, exportBatch[cdevice.CArrowDeviceArray](rec, made), exportBatch[cdata.CArrowArray](rec, made))
		}
	}
}

func exportBatch[S cdevice.ArrayStruct](rec arrow.RecordBatch, made maker) func(*trial) error {
	return func(r *trial) error {
		b := made(r.T, rec)
		defer b.Release()
		return exported(r, rec, func(out *S, schema *cdata.CArrowSchema) error { return cdevice.ExportRecordBatch(b, out, schema) })
	}
}

// Exports of a batch while others are alive, which have the memory that the batch keeps for them.
func TestEachAllocationOfALaterExport(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		for kind, made := range kinds {
			t.Run(name+"/"+kind+"/device", func(t *testing.T) { exportAgain[cdevice.CArrowDeviceArray](t, rec, made) })
			t.Run(name+"/"+kind+"/plain", func(t *testing.T) { exportAgain[cdata.CArrowArray](t, rec, made) })
		}
	}
}

func exportAgain[S cdevice.ArrayStruct](t *testing.T, rec arrow.RecordBatch, made maker) {
	b := made(t, rec)
	defer b.Release()
	export := exportBatch[S](rec, func(*testing.T, arrow.RecordBatch) *cdevice.RecordBatch { b.Retain(); return b })
	first := &trial{T: t}
	require.NoError(t, export(first))
	eachFails(t, 2, export)
	first.end()
}

func TestEachAllocationOfAnExportedArray(t *testing.T) {
	needsOverlay(t)
	rec := table(t, allCases()...)
	for i := range int(rec.NumCols()) {
		eachKind(t, rec.ColumnName(i), 1, exportArray[cdevice.CArrowDeviceArray](rec, i), exportArray[cdata.CArrowArray](rec, i))
	}
}

func exportArray[S cdevice.ArrayStruct](rec arrow.RecordBatch, i int) func(*trial) error {
	return func(r *trial) error {
		a, err := cdevice.WrapArray(rec.Column(i), device.CPUDevice())
		require.NoError(r, err)
		defer a.Release()
		out, schema := garbage[S](), garbage[cdata.CArrowSchema]()
		if err := r.during(func() error { return cdevice.ExportArray(a, out, schema) }); err != nil {
			untouched(r, out)
			untouched(r, schema)
			return err
		}
		in, err := cdevice.ImportArray(out, schema)
		require.NoError(r, err)
		r.keep(in.Release)
		view, err := in.HostView(context.Background())
		require.NoError(r, err)
		defer view.Release()
		assert.True(r, array.Equal(rec.Column(i), view), "%v", view)
		return nil
	}
}

func TestEachAllocationOfAnExportedSchema(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		t.Run(name, func(t *testing.T) {
			exportSchema(t, func(out *cdata.CArrowSchema) error { return cdevice.ExportSchema(rec.Schema(), out) }, func(r *trial, out *cdata.CArrowSchema) {
				s, err := cdevice.ImportSchema(out)
				require.NoError(r, err)
				assert.True(r, s.Equal(rec.Schema()), "%v", s)
			})
		})
	}
	for _, field := range table(t, allCases()...).Schema().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			exportSchema(t, func(out *cdata.CArrowSchema) error { return cdevice.ExportField(field, out) }, func(r *trial, out *cdata.CArrowSchema) {
				f, err := cdevice.ImportField(out)
				require.NoError(r, err)
				assert.True(r, f.Equal(field), "%v", f)
			})
		})
	}
}

func exportSchema(t *testing.T, export func(*cdata.CArrowSchema) error, check func(*trial, *cdata.CArrowSchema)) {
	eachFails(t, 1, func(r *trial) error {
		out := garbage[cdata.CArrowSchema]()
		if err := r.during(func() error { return export(out) }); err != nil {
			untouched(r, out)
			return err
		}
		check(r, out)
		return nil
	})
}

// Package cdata panics with the errors.
func TestEachAllocationOfPackageCdata(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		t.Run(name+"/batch", func(t *testing.T) {
			eachFails(t, 2, func(r *trial) error {
				return exported(r, rec, func(out *cdata.CArrowArray, schema *cdata.CArrowSchema) error {
					return panicked(func() { cdata.ExportArrowRecordBatch(rec, out, schema) })
				})
			})
		})
		t.Run(name+"/array", func(t *testing.T) {
			eachFails(t, 2, func(r *trial) error {
				whole := array.RecordToStructArray(rec)
				defer whole.Release()
				var of arrow.RecordBatch = array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields(), nil), rec.Columns(), rec.NumRows())
				defer of.Release()
				return exported(r, of, func(out *cdata.CArrowArray, schema *cdata.CArrowSchema) error {
					return panicked(func() { cdata.ExportArrowArray(whole, out, schema) })
				})
			})
		})
		t.Run(name+"/schema", func(t *testing.T) {
			export := func(out *cdata.CArrowSchema) error {
				return panicked(func() { cdata.ExportArrowSchema(rec.Schema(), out) })
			}
			exportSchema(t, export, func(r *trial, out *cdata.CArrowSchema) {
				s, err := cdevice.ImportSchema(out) // as it is: package cdata has storage in place of extension types
				require.NoError(r, err)
				assert.True(r, s.Equal(rec.Schema()), "%v", s)
			})
		})
	}
}

// panicked returns the error that f panics with.
func panicked(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = v.(error)
		}
	}()
	f()
	return nil
}
