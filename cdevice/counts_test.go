//go:build !asan

// AddressSanitizer makes the compiler allocate where it otherwise does not.

package cdevice_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
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
			assert.Equal(t, callbacks, bridge.Callbacks(), "nor does a release while the batch is held")
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

// The first export of a batch allocates C memory, which later ones use again: a batch that is exported
// many times costs no call into C, if Go code releases the structs too.
func TestRepeatedExportsCallNoC(t *testing.T) {
	for _, columns := range []int{1, 100} {
		rec, _ := wide(t, columns)
		b := wrap(t, rec)
		out, second := new(cdevice.CArrowDeviceArray), new(cdevice.CArrowDeviceArray)
		export := func(out *cdevice.CArrowDeviceArray) func() {
			return func() { require.NoError(t, cdevice.ExportRecordBatch(b, out, nil)) }
		}
		export(out)()
		cdevice.ReleaseStruct(out)

		// The first of these calls takes the block, which is taken in the others.
		var outs [5]cdevice.CArrowDeviceArray
		i := 0
		intoC, intoGo := crossings(func() { export(&outs[i])(); i++ })
		assert.Equal(t, [2]int64{0, 0}, [2]int64{intoC, intoGo}, "an export, for %d columns", columns)
		intoC, intoGo = crossings(func() { export(second)(); cdevice.ReleaseStruct(second) })
		assert.Equal(t, [2]int64{2, 0}, [2]int64{intoC, intoGo}, "beside others it allocates, and its release frees")
		for i := range outs {
			cdevice.ReleaseStruct(&outs[i])
		}
		intoC, intoGo = crossings(func() { export(out)(); cdevice.ReleaseStruct(out) })
		assert.Equal(t, [2]int64{0, 0}, [2]int64{intoC, intoGo}, "the block came back")
		intoC, intoGo = crossings(func() {
			export(out)()
			back, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema())
			require.NoError(t, err)
			back.Release()
		})
		assert.Equal(t, [2]int64{0, 0}, [2]int64{intoC, intoGo}, "an import releases it in Go, too")
	}
}

// A wrapped batch makes its nodes only for functions other than exports: it takes two Go allocations,
// the batch with its owner, and the list of its data. (With memory of the Go heap, the runtime's list
// of pins grows besides.)
func TestWrapAllocations(t *testing.T) {
	builder := array.NewInt64Builder(mallocator.NewMallocator())
	builder.AppendValues([]int64{1, 2}, nil)
	column := builder.NewArray()
	defer column.Release()
	for _, columns := range []int{1, 10, 1000} {
		fields := slices.Repeat([]arrow.Field{{Name: "c", Type: arrow.PrimitiveTypes.Int64}}, columns)
		rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), slices.Repeat([]arrow.Array{column}, columns), 2)
		defer rec.Release()
		out := new(cdevice.CArrowDeviceArray)
		allocs := testing.AllocsPerRun(100, func() {
			b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			if err != nil || cdevice.ExportRecordBatch(b, out, nil) != nil {
				t.Error("wrap or export failed")
			}
			b.Release()
			cdevice.ReleaseStruct(out)
		})
		assert.LessOrEqual(t, allocs, 2.0, "for %d columns", columns)
	}
}

// A batch that is exported once: the crossings of its whole life, in both orders of the releases.
func TestCrossingsOfABatchThatIsExportedOnce(t *testing.T) {
	rec, _ := wide(t, 10)
	out := new(cdevice.CArrowDeviceArray)
	for name, c := range map[string]struct {
		consumerLast  bool
		intoC, intoGo int64
	}{
		"consumer last": {true, 2, 0},  // malloc, free
		"batch last":    {false, 3, 0}, // malloc, release, free
	} {
		intoC, intoGo := crossings(func() {
			b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			require.NoError(t, err)
			require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
			if c.consumerLast {
				b.Release()
			}
			cdevice.ReleaseStruct(out)
			if !c.consumerLast {
				b.Release()
			}
		})
		assert.Equal(t, [2]int64{c.intoC, c.intoGo}, [2]int64{intoC, intoGo}, name)
	}
}

// A schema is one block more than its batch, and makes no callback.
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
		assert.Equal(t, callbacks, bridge.Callbacks())
	})
}

func TestImportAllocations(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, columns := range []int{1, 10, 1000} {
			rec, tree := wide(t, columns)
			device := new(abi.ArrowDeviceArray)
			var in cArray = arrayOf[cdevice.CArrowDeviceArray]{abi.As[cdevice.CArrowDeviceArray](device)}
			if k.name == plainKind.name {
				in = arrayOf[cdata.CArrowArray]{cdevice.ArrayFromPtr(addressOf(device))}
			}
			schema := rec.Schema()
			allocs := testing.AllocsPerRun(100, func() {
				tree.Export(device)
				b, err := in.importBatchWithSchema(schema)
				if err != nil {
					t.Error(err)
					return
				}
				b.Release()
			})
			assert.LessOrEqual(t, allocs, 1.0, "batch and owner in one, for %d columns", columns)
		}
	})
}

// A host view costs as many allocations for any number of columns, and a column that is taken some
// more; a plain import is counted with them.
func TestHostViewAllocations(t *testing.T) {
	for _, columns := range []int{1, 10, 1000} {
		rec, tree := wide(t, columns)
		in := new(cdevice.CArrowDeviceArray)
		schema := rec.Schema()
		view := func(take func(arrow.RecordBatch)) float64 {
			return testing.AllocsPerRun(100, func() {
				tree.Export(abi.As[abi.ArrowDeviceArray](in))
				b, err := cdevice.ImportRecordBatchWithSchema(in, schema)
				if err != nil {
					t.Error(err)
					return
				}
				defer b.Release()
				rec, err := b.HostView(background)
				if err != nil {
					t.Error(err)
					return
				}
				take(rec)
				rec.Release()
			})
		}
		none := view(func(arrow.RecordBatch) {})
		assert.LessOrEqual(t, none, 5.0, "import, nodes, view, columns, and which of them are made, for %d columns", columns)
		one := view(func(rec arrow.RecordBatch) { rec.Column(0).Len() })
		assert.LessOrEqual(t, one-none, 5.0, "a column of %d", columns)
	}
}

// A full validation of valid columns allocates nothing for a column.
func TestValidationAllocations(t *testing.T) {
	for _, columns := range []int{1, 1000} {
		rec, _ := wide(t, columns)
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		require.NoError(t, b.ValidateFull(background)) // makes the nodes
		assert.LessOrEqual(t, testing.AllocsPerRun(20, func() {
			if err := b.ValidateFull(background); err != nil {
				t.Error(err)
			}
		}), 1.0, "%d columns", columns)
		b.Release()
	}
}

// What a program does with an import that does not look into columns makes no nodes.
func TestNodesAreMadeOnDemand(t *testing.T) {
	const columns = 1000
	rec, tree := wide(t, columns)
	in := new(cdevice.CArrowDeviceArray)
	schema := rec.Schema()
	allocs := testing.AllocsPerRun(100, func() {
		tree.Export(abi.As[abi.ArrowDeviceArray](in))
		b, err := cdevice.ImportRecordBatchWithSchema(in, schema)
		if err != nil {
			t.Error(err)
			return
		}
		if b.NumCols() != columns || b.NumRows() != 3 || !b.Schema().Equal(schema) || b.Synchronize(background) != nil {
			t.Error("another batch")
		}
		b.Release()
	})
	assert.LessOrEqual(t, allocs, 1.0)
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
	part, err := b.Slice(0, 2)
	require.NoError(t, err)
	defer part.Release()
	out := new(cdevice.CArrowDeviceArray)
	for range 3 {
		require.NoError(t, cdevice.ExportRecordBatch(part, out, nil))
		cdevice.ReleaseStruct(out)
	}
	assert.Equal(t, before+1, cdevice.ReadStats().PinnedBatches, "slices share the pins")
}

// NULL buffers are replaced with two allocations more, not with some per column.
func TestReplacedNullsAllocateOnce(t *testing.T) {
	var allocs []float64
	for _, columns := range []int{2, 1000} {
		fields := make([]arrow.Field, columns)
		root := cpeer.Node{Buffers: []uintptr{0}}
		for i := range columns {
			fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: arrow.BinaryTypes.String, Nullable: true}
			root.Children = append(root.Children, cpeer.Node{Buffers: []uintptr{0, 0, 0}})
		}
		tree := cpeer.NewTree(root)
		t.Cleanup(tree.Free)
		schema := arrow.NewSchema(fields, nil)
		in := new(cdevice.CArrowDeviceArray)
		allocs = append(allocs, testing.AllocsPerRun(50, func() {
			tree.Export(abi.As[abi.ArrowDeviceArray](in))
			b, err := cdevice.ImportRecordBatchWithSchema(in, schema)
			if err != nil {
				t.Error(err)
				return
			}
			b.Column(0).Release()
			b.Release()
		}))
	}
	assert.Equal(t, allocs[0], allocs[1])
	assert.LessOrEqual(t, allocs[0], 5.0, "batch, nodes, buffers, the pin of them, and the array")
}

// The nodes of an import are made once: a column costs its array only.
func TestNodesAreMadeOnce(t *testing.T) {
	rec, tree := wide(t, 1000)
	in := new(cdevice.CArrowDeviceArray)
	tree.Export(abi.As[abi.ArrowDeviceArray](in))
	b, err := cdevice.ImportRecordBatchWithSchema(in, rec.Schema())
	require.NoError(t, err)
	defer b.Release()
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { b.Column(0).Release() }), 1.0)
}
