package cdevice_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// importedView imports a foreign batch, and returns its host view; the import itself is released.
func importedView(t *testing.T, f *foreignArray) arrow.RecordBatch {
	t.Helper()
	got, err := f.importWith(f.newSchema(t))
	require.NoError(t, err)
	defer got.Release()
	view, err := got.(*cdevice.RecordBatch).HostView(background)
	require.NoError(t, err)
	return view
}

// arrowGos returns a record batch of arrow-go with the same columns.
func arrowGos(rec arrow.RecordBatch) arrow.RecordBatch {
	return array.NewRecordBatch(rec.Schema(), rec.Columns(), rec.NumRows())
}

// Each function of a host view, called first, has the result of arrow-go's own record batch.
func TestHostViewBehavesAsArrowGos(t *testing.T) {
	text := func(v any) string { return fmt.Sprint(v) }
	slice := func(rec arrow.RecordBatch, i, j int64) string {
		part := rec.NewSlice(i, j)
		defer part.Release()
		return text(part)
	}
	for name, look := range map[string]func(rec arrow.RecordBatch) string{
		"String": func(rec arrow.RecordBatch) string { return text(rec) },
		"JSON": func(rec arrow.RecordBatch) string {
			out, err := json.Marshal(rec)
			return string(out) + text(err)
		},
		"NewSlice": func(rec arrow.RecordBatch) string { return slice(rec, rec.NumRows()/2, rec.NumRows()) },
		"NewSlice out of range": func(rec arrow.RecordBatch) (got string) {
			defer func() { got = text(recover()) }()
			return slice(rec, 0, rec.NumRows()+1)
		},
		"Column": func(rec arrow.RecordBatch) string {
			c := rec.Column(1)
			return text(c) + text(c.NullN()) + text(c.Data().NullN()) + text(c.Data().Offset()) + rec.ColumnName(1)
		},
		"Column out of range": func(rec arrow.RecordBatch) (got string) {
			defer func() { got = text(recover()) }()
			return text(rec.Column(2))
		},
		"SetColumn": func(rec arrow.RecordBatch) string {
			other, err := rec.SetColumn(0, rec.Column(0))
			if err == nil {
				defer other.Release()
			}
			_, outside := rec.SetColumn(2, rec.Column(0))
			return text(other) + text(err) + text(outside)
		},
		"SetColumn of another type": func(rec arrow.RecordBatch) string {
			_, err := rec.SetColumn(0, array.NewNull(int(rec.NumRows())))
			return text(err)
		},
		"numbers": func(rec arrow.RecordBatch) string { return text(rec.NumCols()) + " " + text(rec.NumRows()) },
		"metadata": func(rec arrow.RecordBatch) string {
			return text(rec.(arrow.RecordBatchWithMetadata).Metadata().Len())
		},
		"IPC": func(rec arrow.RecordBatch) string {
			var out bytes.Buffer
			w := ipc.NewWriter(&out, ipc.WithSchema(rec.Schema()))
			err := w.Write(rec)
			return out.String() + text(err) + text(w.Close())
		},
		"table": func(rec arrow.RecordBatch) string {
			table := array.NewTableFromRecords(rec.Schema(), []arrow.RecordBatch{rec})
			defer table.Release()
			return text(table.Column(1).Data().Chunk(0))
		},
		"datum": func(rec arrow.RecordBatch) string {
			datum := compute.NewDatum(rec)
			defer datum.Release()
			return text(datum)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachForeign(t, cases.Variants, asBatch, func(t *testing.T, f *foreignArray) {
				if name == "IPC" && strings.Contains(t.Name(), "_union/sliced") {
					t.Skip("arrow-go's writer never releases the slice of a union that it makes")
				}
				reference := importedView(t, f)
				plain := arrowGos(reference)
				reference.Release()
				defer plain.Release()
				f.restore()
				view := importedView(t, f)
				defer view.Release()
				assert.Equal(t, look(plain), look(view))
				assert.True(t, array.RecordEqual(plain, view))
			})
		})
	}
}

// cdata exports a host view, and the export holds the memory.
func TestHostViewExportedByCdata(t *testing.T) {
	// Not views: cdata does not free the sizes of their buffers (docs/upstream.md, 03).
	for _, name := range []string{"int64", "bool", "utf8", "list", "struct_nested", "map", "dictionary_int8", "dense_union"} {
		checkLeaks(t)
		f := foreignCase(t, name, asBatch)
		view := importedView(t, f)
		want := fmt.Sprint(view)
		schema := view.Schema()
		out := new(cdata.CArrowArray)
		cdata.ExportArrowRecordBatch(view, out, nil)
		view.Release()
		assertHeld(t, f)
		back, err := cdata.ImportCRecordBatchWithSchema(out, schema)
		require.NoError(t, err)
		assert.Equal(t, want, fmt.Sprint(back))
		back.Release()
		assertReleased(t, f, 1)
		f.free()
	}
}

func assertHeld(t *testing.T, f *foreignArray) {
	t.Helper()
	assert.Zero(t, f.counts[0], "released before the last user")
}

// Each part of a host view that is retained keeps the memory.
func TestWhatAHostViewGivesKeepsTheMemory(t *testing.T) {
	for name, take := range map[string]func(rec arrow.RecordBatch) interface{ Release() }{
		"nothing, and no column is made": func(arrow.RecordBatch) interface{ Release() } { return nil },
		"nothing": func(rec arrow.RecordBatch) interface{ Release() } {
			rec.Columns()
			return nil
		},
		"a column": func(rec arrow.RecordBatch) interface{ Release() } {
			c := rec.Column(1)
			c.Retain()
			return c
		},
		"a buffer": func(rec arrow.RecordBatch) interface{ Release() } {
			b := rec.Column(1).Data().Buffers()[1]
			b.Retain()
			return b
		},
		"a slice":  func(rec arrow.RecordBatch) interface{ Release() } { return rec.NewSlice(0, 1) },
		"the view": func(rec arrow.RecordBatch) interface{ Release() } { rec.Retain(); return rec },
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			f := foreignCase(t, "int64", asBatch)
			defer f.free()
			view := importedView(t, f)
			part := take(view)
			view.Release()
			if part != nil {
				assertHeld(t, f)
				part.Release()
			}
			assertReleased(t, f, 1)
		})
	}
}

func TestHostViewAfterItsRelease(t *testing.T) {
	f := foreignCase(t, "int64", asBatch)
	defer f.free()
	view := importedView(t, f)
	view.Release()
	assertReleased(t, f, 1)
	for name, call := range map[string]func(){
		"Column":      func() { view.Column(0) },
		"Columns":     func() { view.Columns() },
		"SetColumn":   func() { _, _ = view.SetColumn(0, nil) },
		"NewSlice":    func() { view.NewSlice(0, 1) },
		"String":      func() { _ = view.(fmt.Stringer).String() },
		"MarshalJSON": func() { _, _ = view.MarshalJSON() },
	} {
		assert.Equal(t, "cdevice: record batch of HostView: "+name+" after the last Release: invalid: already released", panicText(t, call))
	}
	assert.Panics(t, view.Release)
	assert.Panics(t, view.Retain)
}

// Many goroutines ask for the columns of one view, and for the nodes of one batch, first.
func TestColumnsAreMadeOnceForAllGoroutines(t *testing.T) {
	const columns, goroutines = 20, 8
	rec, peer := wide(t, columns)
	for range 50 {
		in := new(cdevice.CArrowDeviceArray)
		peer.Export(abi.As[abi.ArrowDeviceArray](in))
		batch, err := cdevice.ImportRecordBatchWithSchema(in, rec.Schema())
		require.NoError(t, err)
		var got [goroutines][]arrow.Array
		var all sync.WaitGroup
		start := make(chan struct{})
		view, err := batch.HostView(background)
		require.NoError(t, err)
		for g := range goroutines {
			all.Go(func() {
				<-start
				for k := range columns {
					i := (k + g*3) % columns
					got[g] = append(got[g], view.Column(i))
					c := batch.Column(i)
					assert.Equal(t, int64(3), c.Len())
					c.Release()
				}
				if g%2 == 0 {
					assert.Len(t, view.Columns(), columns)
				}
			})
		}
		close(start)
		all.Wait()
		for g := range got {
			for k, c := range got[g] {
				assert.Same(t, view.Column((k+g*3)%columns), c)
			}
		}
		batch.Release()
		view.Release()
	}
}

// NULL buffers of an empty import are replaced when its nodes are made, as Arrow C++ needs them.
func TestNodesOfAnImportHaveNoNullBuffers(t *testing.T) {
	peer := cpeer.NewTree(cpeer.Node{Buffers: []uintptr{0}, Children: []cpeer.Node{{Buffers: []uintptr{0, 0, 0}}}})
	t.Cleanup(peer.Free)
	in := new(cdevice.CArrowDeviceArray)
	peer.Export(abi.As[abi.ArrowDeviceArray](in))
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.BinaryTypes.String}}, nil)
	batch := kept(cdevice.ImportRecordBatchWithSchema(in, schema))(t)
	c := batch.Column(0)
	defer c.Release()
	assert.Equal(t, []device.Ptr{0, device.Ptr(bridge.Zeros), device.Ptr(bridge.Zeros)}, c.Buffers())
}
