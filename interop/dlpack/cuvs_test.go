package dlpack_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
	"github.com/arrowdevice/arrowdevice/interop/dlpack/testdata/cuvs"
)

// datasetOf returns a column of fixed_size_list<float32>[n] as a tensor of cuVS, which refers to the
// column's memory. done ends the tensor; call it when neither cuVS's work nor an index uses it.
func datasetOf(ctx context.Context, column *cdevice.Array) (t cuvs.Tensor[float32], done func(), err error) {
	if err := column.Synchronize(ctx); err != nil { // cuVS reads at once, on a stream of its own
		return t, nil, err
	}
	managed, err := dlpack.ExportLegacy(column)
	if err != nil {
		return t, nil, err
	}
	// C_tensor points to a type of cgo, which only cuVS can name.
	*(*unsafe.Pointer)(unsafe.Pointer(&t.C_tensor)) = unsafe.Pointer(managed)
	return t, managed.Delete, nil
}

// The recipe for cuVS's Go binding, against a copy of its type.
func TestCuVSRecipe(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		before := cdevice.ReadStats()
		dt := arrow.FixedSizeListOf(4, arrow.PrimitiveTypes.Float32)
		column, err := fromJSON(t, dt, "[[1,2,3,4],[5,6,7,8],[9,10,11,12]]").CopyTo(background, m.GPUs[0])
		require.NoError(t, err)
		address := leaf(t, column)
		dataset, done, err := datasetOf(background, column)
		require.NoError(t, err)
		column.Release()
		index, err := cuvs.BuildIndex(&dataset)
		require.NoError(t, err)
		assert.Equal(t, cuvs.Dataset{Rows: 3, Columns: 4, Data: uintptr(address)}, index)
		assert.Positive(t, m.GPUs[0].ReadStats().Device.Live)
		done()
		after := cdevice.ReadStats()
		assert.Equal(t, before.ExportedArrays, after.ExportedArrays)
		assert.Equal(t, before.ExportedBlocks, after.ExportedBlocks)
	})
}

// The page has the function that this test runs.
func TestCuVSRecipeIsThatOfThePage(t *testing.T) {
	test, err := os.ReadFile("cuvs_test.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/dlpack.md")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(test), "// datasetOf returns")
	code, _, _ = strings.Cut(code, "\n}\n")
	assert.NotEmpty(t, code)
	assert.Contains(t, string(page), "// datasetOf returns"+code+"\n}\n")
}
