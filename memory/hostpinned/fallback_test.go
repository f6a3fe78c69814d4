package hostpinned_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

const rows, rowsOfABatch = 40_000, 8_000

// parquetFile is a file of several columns.
func parquetFile(t *testing.T) (content []byte, want arrow.RecordBatch) {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "i", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true},
		{Name: "j", Type: arrow.PrimitiveTypes.Int64},
		{Name: "b", Type: arrow.FixedWidthTypes.Boolean},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range rows {
		if i%7 == 0 {
			b.Field(0).AppendNull()
		} else {
			b.Field(0).(*array.Int64Builder).Append(int64(i))
		}
		b.Field(1).(*array.Float64Builder).Append(float64(i) / 3)
		b.Field(2).(*array.StringBuilder).Append(strings.Repeat("x", i%23) + "end")
		l := b.Field(3).(*array.ListBuilder)
		l.Append(true)
		for j := range i % 5 {
			l.ValueBuilder().(*array.Int32Builder).Append(int32(i * j))
		}
		b.Field(4).(*array.Int64Builder).Append(int64(-i))
		b.Field(5).(*array.BooleanBuilder).Append(i%3 == 0)
	}
	want = b.NewRecordBatch()
	t.Cleanup(want.Release)
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &out, nil, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	require.NoError(t, err)
	require.NoError(t, w.Write(want))
	require.NoError(t, w.Close())
	return out.Bytes(), want
}

// readParallel reads the file, column by column in parallel, and calls each with every batch.
func readParallel(t *testing.T, content []byte, mem memory.Allocator, each func(arrow.RecordBatch)) {
	t.Helper()
	pf, err := file.NewParquetReader(bytes.NewReader(content))
	require.NoError(t, err)
	defer pf.Close()
	fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{Parallel: true, BatchSize: rowsOfABatch}, mem)
	require.NoError(t, err)
	rr, err := fr.GetRecordReader(background, nil, nil)
	require.NoError(t, err)
	defer rr.Release()
	for rr.Next() {
		each(rr.RecordBatch())
	}
	require.NoError(t, rr.Err())
}

// Below arrow-go's parallel reader, reaching the limit costs only speed: all values are right, and
// copies to the GPU stage the buffers that are not page-locked.
func TestParquetReaderOverALimit(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{PageableAsync: true})
	gpu := m.GPUs[0]
	content, want := parquetFile(t)
	plain := memory.NewCheckedAllocator(memory.DefaultAllocator)
	mem := cudatest.Pinned(t, gpu, hostpinned.WithLimit(512<<10), hostpinned.WithFallback(plain))
	var yes, no int
	at := int64(0)
	readParallel(t, content, mem, func(rec arrow.RecordBatch) {
		part := want.NewSlice(at, at+rec.NumRows())
		defer part.Release()
		at += rec.NumRows()
		assert.True(t, array.RecordEqual(part, rec), "values from row %d", at)
		for _, col := range rec.Columns() {
			y, n := locked(t, gpu, col.Data())
			yes, no = yes+y, no+n
		}
		copied, err := cdevice.CopyToDevice(background, rec, gpu)
		require.NoError(t, err)
		back, err := copied.CopyToHost(background, nil)
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(part, back), "values of the copy from row %d", at)
		back.Release()
		copied.Release()
	})
	assert.EqualValues(t, rows, at)
	assert.Positive(t, yes, "page-locked buffers")
	assert.Positive(t, no, "buffers of ordinary memory")
	s := mem.ReadStats().Fallback
	assert.Positive(t, s.Total)
	assert.Greater(t, s.Peak, s.Total)
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, mem.ReadStats().Fallback.Live)
	plain.AssertSize(t, 0)
	use := mem.ReadStats().Pinned
	assert.Zero(t, use.Live)
	assert.Zero(t, use.Allocations)
	assert.Positive(t, use.Peak)
	assert.Positive(t, use.Total)
	assert.LessOrEqual(t, use.Held, int64(512<<10))
	assert.Zero(t, sizeclass.Fallbacks(), "nothing is known of memory that was freed")
}

// Without a fallback the process ends, in a goroutine of arrow-go's: the text names the limit.
func TestParquetReaderOverALimitWithoutFallback(t *testing.T) {
	cudasim.Load(t, cudasim.Options{}) // where it skips the test, it skips the child's
	child := emulated.Command(os.Args[0], "-test.run=^TestParquetReaderChild$")
	child.Env = append(os.Environ(), "CDEVICE_TEST_CHILD=limit")
	out, err := child.CombinedOutput()
	require.Error(t, err, string(out))
	assert.Contains(t, string(out), "panic: ")
	assert.Contains(t, string(out), "of cuda_host:0 memory: the allocator's limit is reached: ")
	assert.Contains(t, string(out), "hostpinned.WithFallback", "it says what to do")
}

func TestParquetReaderChild(t *testing.T) {
	if os.Getenv("CDEVICE_TEST_CHILD") != "limit" {
		t.Skip("a part of TestParquetReaderOverALimitWithoutFallback")
	}
	m := cudatest.Simulated(t, cudasim.Options{})
	content, _ := parquetFile(t)
	readParallel(t, content, cudatest.Pinned(t, m.GPUs[0], hostpinned.WithLimit(128<<10)), func(arrow.RecordBatch) {})
}

// Memory that a GPU must not use is not passed on as page-locked.
func TestFallbackIsNotWrappedAsPageLocked(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	mem := cudatest.Pinned(t, m.GPUs[0], hostpinned.WithLimit(256<<10), hostpinned.WithFallback(nil))
	small := array.NewInt64Builder(mem)
	defer small.Release()
	small.Append(1)
	one := small.NewArray()
	defer one.Release()
	b := array.NewInt64Builder(mem)
	defer b.Release()
	b.AppendValues(slices.Repeat([]int64{1}, 100_000), nil)
	arr := b.NewArray()
	defer arr.Release()
	require.Positive(t, mem.ReadStats().Fallback.Live)
	part := array.NewSlice(arr, 70_000, 70_010)
	defer part.Release()
	for _, a := range []arrow.Array{arr, part} {
		_, err := cdevice.WrapArray(a, mem.Device())
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "wrap with device.CPUDevice()")
		wrapped, err := cdevice.WrapArray(a, device.CPUDevice())
		require.NoError(t, err)
		copied, err := wrapped.CopyTo(background, m.GPUs[0])
		require.NoError(t, err)
		back, err := copied.CopyToHost(background, nil)
		require.NoError(t, err)
		assert.True(t, array.Equal(a, back))
		back.Release()
		copied.Release()
		wrapped.Release()
	}
	wrapped, err := cdevice.WrapArray(one, mem.Device())
	require.NoError(t, err, "page-locked, while other memory is not")
	wrapped.Release()
}
