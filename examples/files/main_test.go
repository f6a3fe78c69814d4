package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// written returns the path of a file with one column of so many rows.
func written(t *testing.T, column string, rows int) string {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: column, Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(make([]int64, rows), nil)
	rec := b.NewRecordBatch()
	defer rec.Release()
	path := filepath.Join(t.TempDir(), column+".parquet")
	f, err := os.Create(path)
	require.NoError(t, err)
	w, err := pqarrow.NewFileWriter(schema, f, nil, pqarrow.DefaultWriterProps())
	require.NoError(t, err)
	require.NoError(t, w.Write(rec))
	require.NoError(t, w.Close())
	return path
}

// simulated returns a GPU. When the test ends, it fails for what is not released.
func simulated(t *testing.T) *cudaalloc.Device {
	t.Helper()
	cudasimtest.Start(t)
	cdevicetest.CheckLeaks(t)
	gpu, err := cudaalloc.Open(0)
	require.NoError(t, err)
	return gpu
}

func TestCancelled(t *testing.T) {
	gpu := simulated(t)
	ctx, cancel := context.WithCancel(t.Context())
	batches := 0
	err := load(ctx, gpu, []string{written(t, "n", 1<<18), written(t, "n", 10)}, func(*cdevice.RecordBatch) {
		batches++
		cancel()
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, batches)
}

func TestFilesThatDoNotFit(t *testing.T) {
	gpu := simulated(t)
	rows := int64(0)
	use := func(b *cdevice.RecordBatch) { rows += b.NumRows() }
	require.ErrorIs(t, load(t.Context(), gpu, []string{written(t, "n", 3), "absent.parquet"}, use), os.ErrNotExist)
	assert.EqualValues(t, 3, rows)
	assert.NoError(t, load(t.Context(), gpu, []string{written(t, "n", 3), written(t, "other name", 4)}, use))
	assert.EqualValues(t, 10, rows)
}
