//go:build !asan

// AddressSanitizer makes the compiler allocate where it otherwise does not.

package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// Plain structs cost as much as device structs; see counts_test.go.

func TestPlainExportAllocations(t *testing.T) {
	checkLeaks(t)
	for _, columns := range []int{1, 10, 1000} {
		rec, _ := wide(t, columns)
		b := wrap(t, rec)
		out := garbagePlain()
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if cdevice.ExportRecordBatch(b, out, nil) != nil {
				t.Error("export failed")
			}
			cdevice.ReleaseStruct(out)
		}), "Go allocations for %d columns", columns)

		blocks, callbacks := cdevice.ReadStats().ExportedBlocks, bridge.Callbacks()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
		assert.Equal(t, blocks+1, cdevice.ReadStats().ExportedBlocks, "C allocations for %d columns", columns)
		assert.Equal(t, callbacks, bridge.Callbacks(), "an export makes no call from C into Go")
		cdevice.ReleaseStruct(out)
		assert.Equal(t, callbacks, bridge.Callbacks(), "nor does a release while the batch is held")
	}
}

func TestPlainImportAllocations(t *testing.T) {
	for _, columns := range []int{1, 10, 1000} {
		rec, tree := wide(t, columns)
		in := new(cdevice.CArrowDeviceArray)
		plain := cdevice.ArrayFromPtr(addressOf(&in.Array))
		schema := rec.Schema()
		allocs := testing.AllocsPerRun(100, func() {
			tree.Export(abi.As[abi.ArrowDeviceArray](in))
			b, err := cdevice.ImportRecordBatchWithSchema(plain, schema)
			if err != nil {
				t.Error(err)
				return
			}
			b.Release()
		})
		assert.LessOrEqual(t, allocs, 1.0, "batch and owner in one, for %d columns", columns)
	}
}

// A schema is one allocation more, and no callback.
func TestPlainExportWithItsSchemaIsTwoBlocks(t *testing.T) {
	checkLeaks(t)
	rec, _ := wide(t, 100)
	b := wrap(t, rec)
	before, callbacks := cdevice.ReadStats(), bridge.Callbacks()
	out, schema := garbagePlain(), new(cdata.CArrowSchema)
	require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
	assert.Equal(t, before.ExportedBlocks+2, cdevice.ReadStats().ExportedBlocks)
	cdevice.ReleaseStruct(out)
	cdevice.ReleaseStruct(schema)
	assert.Equal(t, before, cdevice.ReadStats())
	assert.Equal(t, callbacks, bridge.Callbacks())
}
