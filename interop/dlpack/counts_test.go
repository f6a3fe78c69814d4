//go:build !asan

// AddressSanitizer makes the compiler allocate where it otherwise does not.

package dlpack_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// The cost of an export: two blocks of C memory, that of the array and that of the tensor. Its
// deleter makes one call from C into Go.
func TestExportAllocations(t *testing.T) {
	for _, c := range []struct {
		name   string
		dt     arrow.DataType
		json   string
		allocs float64
	}{
		{"1-D", arrow.PrimitiveTypes.Float32, "[1,2]", 2},
		{"3-D", listOf(arrow.PrimitiveTypes.Float32, 2, 2), "[[[1,2],[3,4]]]", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := fromJSON(t, c.dt, c.json)
			eachForm(t, func(t *testing.T, f form) {
				blocks, callbacks := cdevice.ReadStats().ExportedBlocks, bridge.Callbacks()
				out, err := f.export(a)
				require.NoError(t, err)
				assert.Equal(t, blocks+2, cdevice.ReadStats().ExportedBlocks)
				assert.Equal(t, callbacks, bridge.Callbacks())
				out.deleted()
				assert.Equal(t, callbacks+1, bridge.Callbacks())
				assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
					out, err := f.export(a)
					if err != nil {
						t.Error(err)
						return
					}
					out.deleted()
				}), c.allocs+1) // one of the test's own
			})
		})
	}
}

// The cost of an import: one block of C memory. The deleter is called from Go, without a callback.
func TestImportAllocations(t *testing.T) {
	data := numbers(t)
	eachForm(t, func(t *testing.T, f form) {
		peer := peerOf(t, device.CPU, data, 4)
		blocks, callbacks := cdevice.ReadStats().ExportedBlocks, bridge.Callbacks()
		a, err := f.take(f.of(peer))
		require.NoError(t, err)
		assert.Equal(t, blocks+1, cdevice.ReadStats().ExportedBlocks)
		a.Release()
		assert.Equal(t, callbacks, bridge.Callbacks())
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			a, err := f.take(f.of(peer))
			if err != nil {
				t.Error(err)
				return
			}
			a.Release()
		}), 7.0)
	})
}
