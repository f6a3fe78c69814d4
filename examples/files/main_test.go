package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
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
	plain := parquet.NewWriterProperties(parquet.WithDictionaryDefault(false))
	w, err := pqarrow.NewFileWriter(schema, f, plain, pqarrow.DefaultWriterProps())
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

func TestFilesThatCannotBeRead(t *testing.T) {
	gpu := simulated(t)
	good, none := written(t, "n", 3), func(*cdevice.RecordBatch) { t.Error("a batch") }
	assert.ErrorContains(t, load(t.Context(), gpu, nil, none), "no files")
	assert.ErrorIs(t, load(t.Context(), gpu, []string{good, "absent.parquet"}, none), os.ErrNotExist)
	bad := filepath.Join(t.TempDir(), "bad.parquet")
	require.NoError(t, os.WriteFile(bad, []byte("no Parquet"), 0o644))
	rows := int64(0)
	use := func(b *cdevice.RecordBatch) { rows += b.NumRows() }
	assert.ErrorContains(t, load(t.Context(), gpu, []string{good, bad}, use), bad)
	assert.EqualValues(t, 3, rows)
	assert.NoError(t, load(t.Context(), gpu, []string{good, written(t, "other name", 4)}, use))
	assert.EqualValues(t, 10, rows)
}

func TestProgress(t *testing.T) {
	gpu := simulated(t)
	a, b := written(t, "n", 3), written(t, "n", 1000)
	before, err := bytesBefore([]string{a, b})
	require.NoError(t, err)
	assert.Greater(t, before[2], before[1])
	written, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
	os.Stderr = written
	require.NoError(t, load(t.Context(), gpu, []string{a, b}, func(*cdevice.RecordBatch) {}))
	require.NoError(t, written.Close())
	progress, err := os.ReadFile(written.Name())
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("%s: file 1 of 2, after 0 of %d bytes\n%s: file 2 of 2, after %d of %[2]d bytes\n",
		a, before[2], b, before[1]), string(progress))
}

// A file is opened when three batches are missing before it, at the earliest.
func TestFilesAreOpenedInTurn(t *testing.T) {
	gpu := simulated(t)
	good := written(t, "n", 3)
	last := filepath.Join(t.TempDir(), "last.parquet")
	require.NoError(t, os.WriteFile(last, []byte("not yet there"), 0o644))
	batches := 0
	err := load(t.Context(), gpu, []string{good, good, good, good, last}, func(*cdevice.RecordBatch) {
		if batches++; batches == 1 {
			require.NoError(t, os.Rename(written(t, "n", 3), last))
		}
	})
	assert.NoError(t, err)
	assert.Equal(t, 5, batches)
}

// Of a file of 32 MiB, a few batches and pages are in memory.
func TestMemoryIsBounded(t *testing.T) {
	gpu := simulated(t)
	limits := cudaalloc.DefaultLimits()
	limits.Waiting = 4 << 20 // of batches that nobody holds any more
	gpu.SetLimits(limits)
	large := written(t, "n", 4<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, load(t.Context(), gpu, []string{large}, func(*cdevice.RecordBatch) {}))
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "bytes of the Go heap, all together")
	assert.Less(t, gpu.ReadStats().Pinned.Peak, int64(24<<20))
	assert.Less(t, gpu.ReadStats().Device.Peak, int64(16<<20))
}
