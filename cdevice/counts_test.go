//go:build !asan && !race

// AddressSanitizer makes the compiler allocate where it otherwise does not, and the race detector makes a sync.Pool drop some
// of what it has.

package cdevice_test

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// These tests count the cost of operations in units that do not depend on the machine: Go
// allocations, C allocations and calls from C into Go.

func TestExportAllocations(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, columns := range []int{1, 10, 1000} {
			rec, _ := wide(t, columns)
			b := wrap(t, rec)
			out := k.newArray()
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				if out.exportBatch(b, nil) != nil {
					t.Error("export failed")
				}
				out.release()
			}), "Go allocations for %d columns", columns)

			blocks, callbacks := cdevice.ReadStats().ExportedBlocks, bridge.Callbacks()
			require.NoError(t, out.exportBatch(b, nil))
			assert.Equal(t, blocks+1, cdevice.ReadStats().ExportedBlocks, "C allocations for %d columns", columns)
			assert.Equal(t, callbacks, bridge.Callbacks(), "an export makes no call from C into Go")
			out.release()
			assert.Equal(t, callbacks+1, bridge.Callbacks(), "a release makes one")
		}
	})
}

// crossings counts the calls from Go into C, and from C into Go, of a function: the least of several
// calls, since other goroutines make some too.
func crossings(do func()) (intoC, intoGo int64) {
	intoC, intoGo = math.MaxInt64, math.MaxInt64
	for range 5 {
		c, g := runtime.NumCgoCall(), bridge.Callbacks()
		do()
		intoC, intoGo = min(intoC, runtime.NumCgoCall()-c), min(intoGo, bridge.Callbacks()-g)
	}
	return intoC, intoGo
}

// An export allocates one block of C; its release makes one call into Go.
func TestCrossingsOfAnExport(t *testing.T) {
	for _, columns := range []int{1, 100} {
		rec, _ := wide(t, columns)
		b := wrap(t, rec)
		out := new(cdevice.CArrowDeviceArray)
		exporting := func() { require.NoError(t, cdevice.ExportRecordBatch(b, out, nil)) }
		intoC, intoGo := crossings(func() { exporting(); cdevice.ReleaseStruct(out) })
		assert.Equal(t, [2]int64{2, 1}, [2]int64{intoC, intoGo}, "an export and its release, for %d columns", columns)
		intoC, intoGo = crossings(func() {
			exporting()
			back, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema())
			require.NoError(t, err)
			back.Release()
		})
		assert.Equal(t, [2]int64{2, 1}, [2]int64{intoC, intoGo}, "and with an import in between")
	}
}

// The most Go allocations of operations, for any number of columns.
func TestAllocations(t *testing.T) {
	type operation = func(t *testing.T, columns int) (do func())
	importing := func(use func(*cdevice.RecordBatch)) operation {
		return func(t *testing.T, columns int) func() {
			rec, tree := wide(t, columns)
			in, schema := new(cdevice.CArrowDeviceArray), rec.Schema()
			return func() {
				tree.Export(abi.As[abi.ArrowDeviceArray](in))
				b, err := cdevice.ImportRecordBatchWithSchema(in, schema)
				require.NoError(t, err)
				use(b)
				b.Release()
			}
		}
	}
	viewing := func(take func(arrow.RecordBatch)) operation {
		return importing(func(b *cdevice.RecordBatch) {
			rec, err := b.HostView(background)
			require.NoError(t, err)
			take(rec)
			rec.Release()
		})
	}
	for name, row := range map[string]struct {
		most float64
		of   operation
	}{
		"import: the batch": {1, importing(func(*cdevice.RecordBatch) {})},
		"plain import": {1, func(t *testing.T, columns int) func() {
			rec, tree := wide(t, columns)
			in, schema := new(abi.ArrowDeviceArray), rec.Schema()
			return func() {
				tree.Export(in)
				b, err := cdevice.ImportRecordBatchWithSchema(cdevice.ArrayFromPtr(addressOf(in)), schema)
				require.NoError(t, err)
				b.Release()
			}
		}},
		"import that is not looked into makes no nodes": {1, importing(func(b *cdevice.RecordBatch) {
			if b.NumRows() != 3 || b.NumCols() != b.Schema().NumFields() || b.Synchronize(background) != nil {
				t.Error("another batch")
			}
		})},
		"values of all columns: as many as the import": {1, func(t *testing.T, columns int) func() {
			return importing(func(b *cdevice.RecordBatch) {
				for i := range columns {
					v, err := b.ColumnView(background, i)
					require.NoError(t, err)
					values, err := cdevice.Values[int64](v)
					require.NoError(t, err)
					if len(values) != 3 || v.NullN() != 0 || v.IsNull(2) {
						t.Error("other values")
					}
				}
			})(t, columns)
		}},
		"strings: none beside the import": {1, func(t *testing.T, columns int) func() {
			rec := columnsOf(offHeap, columns, 3, true)
			t.Cleanup(rec.Release)
			b := wrap(t, rec)
			return func() {
				v, err := b.ColumnView(background, columns-1)
				require.NoError(t, err)
				text, err := v.Strings(background)
				require.NoError(t, err)
				if text.Len() != 3 || text.At(2) == "" {
					t.Error("other strings")
				}
			}
		}},
		"view: import, view, columns, and which of them are made": {4, viewing(func(arrow.RecordBatch) {})},
		"view of a column: as many, and a share of slabs":         {5, viewing(func(rec arrow.RecordBatch) { rec.Column(0).Len() })},
		"column, whose nodes are made already": {1, func(t *testing.T, columns int) func() {
			rec, tree := wide(t, columns)
			in := new(cdevice.CArrowDeviceArray)
			tree.Export(abi.As[abi.ArrowDeviceArray](in))
			b := kept(cdevice.ImportRecordBatchWithSchema(in, rec.Schema()))(t)
			return func() { b.Column(0).Release() }
		}},
		"validation": {1, func(t *testing.T, columns int) func() {
			rec, _ := wide(t, columns)
			b := wrap(t, rec)
			return func() { require.NoError(t, b.ValidateFull(background)) }
		}},
		// With memory of the Go heap, the runtime's list of pins grows besides.
		"wrap and export: the batch, the list of data": {2, func(t *testing.T, columns int) func() {
			rec := columnsOf(offHeap, columns, 2, false)
			t.Cleanup(rec.Release)
			out := new(cdevice.CArrowDeviceArray)
			return func() {
				b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
				require.NoError(t, err)
				require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
				b.Release()
				cdevice.ReleaseStruct(out)
			}
		}},
		"NULL buffers that are replaced: batch, nodes, buffers, the pin of them, and an array": {5, func(t *testing.T, columns int) func() {
			root := cpeer.Node{Buffers: []uintptr{0}, Children: slices.Repeat([]cpeer.Node{{Buffers: []uintptr{0, 0, 0}}}, columns)}
			tree := cpeer.NewTree(root)
			t.Cleanup(tree.Free)
			fields := slices.Repeat([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, columns)
			in, schema := new(cdevice.CArrowDeviceArray), arrow.NewSchema(fields, nil)
			return func() {
				tree.Export(abi.As[abi.ArrowDeviceArray](in))
				b, err := cdevice.ImportRecordBatchWithSchema(in, schema)
				require.NoError(t, err)
				b.Column(0).Release()
				b.Release()
			}
		}},
	} {
		for _, columns := range []int{1, 10, 1000} {
			do := row.of(t, columns)
			do() // what is made once, as plans of schemas
			assert.LessOrEqual(t, testing.AllocsPerRun(50, do), row.most, "%s, %d columns", name, columns)
		}
	}
}

// An import calls the release of the producer, and no other C.
func TestCrossingsOfAnImport(t *testing.T) {
	for _, columns := range []int{1, 100} {
		rec, tree := wide(t, columns)
		in, schema := new(cdevice.CArrowDeviceArray), rec.Schema()
		intoC, intoGo := crossings(func() {
			tree.Export(abi.As[abi.ArrowDeviceArray](in)) // the first of two calls
			b, err := cdevice.ImportRecordBatchWithSchema(in, schema)
			require.NoError(t, err)
			b.Release()
		})
		assert.Equal(t, [2]int64{2, 0}, [2]int64{intoC, intoGo}, "for %d columns", columns)
	}
}

// The objects of arrow-go for the columns of a view come from slabs, one for 16 columns of numbers.
func TestViewsOfAllColumnsAllocateSlabs(t *testing.T) {
	for _, columns := range []int{1, 10, 100, 1000} {
		rec, tree := wide(t, columns)
		in := new(cdevice.CArrowDeviceArray)
		most := 2.0 // the import, the view
		if columns > 16 {
			most += 2 // the columns, and which of them are made
		}
		most += math.Ceil(float64(columns) / 16)
		assert.LessOrEqual(t, testing.AllocsPerRun(50, func() {
			tree.Export(abi.As[abi.ArrowDeviceArray](in))
			b, err := cdevice.ImportRecordBatchWithSchema(in, rec.Schema())
			require.NoError(t, err)
			view, err := b.HostView(background)
			require.NoError(t, err)
			b.Release()
			for i := range columns {
				if view.Column(i).Len() != 3 {
					t.Error("another column")
				}
			}
			view.Release()
		}), most, "%d columns", columns)
	}
}

// The crossings of the whole life of a batch that is exported once, in both orders of the releases.
func TestCrossingsOfABatchThatIsExportedOnce(t *testing.T) {
	rec, _ := wide(t, 10)
	out := new(cdevice.CArrowDeviceArray)
	for name, consumerLast := range map[string]bool{"consumer last": true, "batch last": false} {
		intoC, intoGo := crossings(func() {
			b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			require.NoError(t, err)
			require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
			if consumerLast {
				b.Release()
			}
			cdevice.ReleaseStruct(out)
			if !consumerLast {
				b.Release()
			}
		})
		assert.Equal(t, [2]int64{2, 1}, [2]int64{intoC, intoGo}, name)
	}
}

func TestAllocationsOfWrapsThatStayAlive(t *testing.T) {
	rec := columnsOf(offHeap, 5, 2, false)
	defer rec.Release()
	batches := make([]*cdevice.RecordBatch, 0, 101)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		batches = append(batches, b)
	}), 5.0, "the batch, the list of data; pins, with a list of them and a Pinner")
	for _, b := range batches {
		b.Release()
	}
}

// A schema is one block more than its batch, and makes no callback; the release of the batch makes one.
func TestSchemaIsOneBlockAndNoCallback(t *testing.T) {
	rec, _ := wide(t, 100)
	b := wrap(t, rec)
	eachKind(t, func(t *testing.T, k kind) {
		before, callbacks := cdevice.ReadStats(), bridge.Callbacks()
		out, schema := k.newArray(), garbageSchema()
		require.NoError(t, out.exportBatch(b, schema))
		assert.Equal(t, before.ExportedBlocks+2, cdevice.ReadStats().ExportedBlocks)
		out.release()
		cdevice.ReleaseStruct(schema)
		assert.Equal(t, before, cdevice.ReadStats())
		assert.Equal(t, callbacks+1, bridge.Callbacks())
	})
}

// Nested types too: nodes of all levels come from one allocation.
func TestNestedImportAllocations(t *testing.T) {
	for _, c := range cases.All() {
		arr, err := c.Array(memory.NewGoAllocator(), cases.Nulls)
		require.NoError(t, err)
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		out := new(cdevice.CArrowDeviceArray)
		allocs := testing.AllocsPerRun(20, func() {
			if err := cdevice.ExportArray(a, out, nil); err != nil {
				t.Error(err)
			}
			back, err := cdevice.ImportArrayWithType(out, c.Type)
			if err != nil {
				t.Error(err)
				return
			}
			back.Release()
		})
		assert.LessOrEqual(t, allocs, 8.0, c.Name)
		a.Release()
		arr.Release()
	}
}

// Pins are taken once per batch: a second export allocates and pins nothing.
func TestRepeatedExportsOfGoMemoryPinNothing(t *testing.T) {
	checkLeaks(t)
	rec, _ := wide(t, 100)
	before := cdevice.ReadStats().PinnedBatches
	b := wrap(t, rec)
	assert.Equal(t, before+1, cdevice.ReadStats().PinnedBatches)
	part := kept(b.Slice(0, 2))(t)
	out := new(cdevice.CArrowDeviceArray)
	for range 3 {
		require.NoError(t, cdevice.ExportRecordBatch(part, out, nil))
		cdevice.ReleaseStruct(out)
	}
	assert.Equal(t, before+1, cdevice.ReadStats().PinnedBatches, "slices share the pins")
}
