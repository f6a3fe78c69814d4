package cdevice_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// The driver calls that an operation may cost, counted by the simulator.

// What neither copies nor waits calls nothing.
func TestWhatCallsNoDriver(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1000, 3, true)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	a, b := batch.Column(2), batch.Column(0)
	var again *cdevice.RecordBatch
	require.NoError(t, gpu.Flush(background)) // in the background it would be counted
	for name, do := range map[string]func(){
		"import and export again": func() {
			batch.Retain()
			again = sent(t, sent(t, batch, gpu), gpu)
		},
		"export, whose event is there already": func() {
			out := garbageArray()
			require.NoError(t, cdevice.ExportRecordBatch(batch, out, nil))
			assert.NotZero(t, out.SyncEvent)
			cdevice.ReleaseStruct(out)
		},
		"columns with one event": func() {
			of, err := cdevice.RecordBatchFromArrays(arrow.NewSchema([]arrow.Field{a.Field(), b.Field()}, nil), a, b)
			require.NoError(t, err)
			with, err := of.WithColumn(arrow.Field{Name: "again", Type: a.DataType()}, a)
			require.NoError(t, err)
			of.Release()
			with.Release()
		},
		"a stream through C": func() {
			once, err := readerFunc(rec.Schema(), device.CUDA, nextOf(nil, batch, batch, batch), nil)
			require.NoError(t, err)
			in, err := cdevice.ImportRecordReader(export(t, once), cdevice.WithDevice(gpu))
			require.NoError(t, err)
			n, err := count(in.All())
			require.NoError(t, err)
			assert.Equal(t, 3, n)
			in.Release()
		},
	} {
		made, _ := calls(m, do)
		assert.Empty(t, made, name)
	}
	for _, held := range []interface{ Release() }{again, a, b, batch} {
		held.Release()
	}
}

// Offsets are read with one wait, and data with one more.
func TestCopyOfAnImportCalls(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1000, 3, true)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	imported := sent(t, batch, gpu)
	defer imported.Release()
	made, report := calls(m, func() { require.NoError(t, second(imported.NumBytes(background))) })
	assert.Equal(t, 1000, made["cuMemcpyAsync"], "the offsets of each column")
	assert.Equal(t, 1, report.Synchronisations)
	made, report = calls(m, func() { sameBatchOnHost(t, rec, imported) })
	assert.LessOrEqual(t, made["cuMemcpyAsync"], 2000)
	assert.Equal(t, 2, report.Synchronisations, "for the offsets, and for the data")
}

func TestWithEventCalls(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	rec := columnsOf(memory.DefaultAllocator, 100, 10, true)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, m.GPUs[0])
	require.NoError(t, err)
	require.NoError(t, m.GPUs[0].Flush(background)) // in the background it would be counted
	s, out := newStream(t, m.GPUs[0]), garbageArray()
	for round, most := range []int{1, 0} {
		made, report := calls(m, func() { require.NoError(t, exportMade(out, nil)(batch.WithEvent(s))) })
		assert.LessOrEqual(t, made["cuEventCreate"], most, "round %d", round)
		assert.Equal(t, 1, made["cuEventRecord"])
		assert.Zero(t, report.Synchronisations)
		require.NoError(t, s.Synchronize(background))
		cdevice.ReleaseStruct(out)
		require.NoError(t, m.GPUs[0].Flush(background))
	}
	batch.Release()
}

func TestCopyToDeviceCalls(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 100, 12_500, false) // 10 MB
	defer rec.Release()
	for round := range 2 {
		var batch *cdevice.RecordBatch
		made, report := calls(m, func() {
			var err error
			batch, err = cdevice.CopyToDevice(background, rec, gpu)
			require.NoError(t, err)
		})
		assert.Equal(t, 1, made["cuMemAllocFromPoolAsync"])
		assert.LessOrEqual(t, made["cuMemcpyAsync"], 4)
		assert.Equal(t, 1, made["cuEventRecord"], "the batch's event is the staging buffer's too")
		assert.Zero(t, report.Synchronisations)
		if round > 0 {
			assert.Zero(t, made["cuMemHostAlloc"], "the staging buffer is kept")
		}

		pinned := cudatest.Pinned(t, gpu)
		for _, mem := range []memory.Allocator{pinned, nil} {
			made, report = calls(m, func() {
				back, err := batch.CopyToHost(background, mem)
				require.NoError(t, err)
				assert.True(t, array.RecordEqual(rec, back))
				back.Release()
			})
			assert.LessOrEqual(t, made["cuMemcpyAsync"], 3)
			assert.LessOrEqual(t, made["cuStreamSynchronize"], 1)
			if mem != nil {
				assert.Equal(t, 1, report.Synchronisations)
				assert.Zero(t, report.StagedBytes)
			}
		}
		pinned.Trim()
		batch.Release()
		require.NoError(t, gpu.Flush(background)) // in the background it would be counted
	}
}

// A large copy costs a call of the driver for each 4 MiB of plain memory that is staged, or 8 MiB to the host, and one
// where the memory is page-locked, whose padding alone is filled. The calls are as many on any number of cores.
func TestLargeCopyCalls(t *testing.T) {
	const rows = 8 << 20 // 64 MiB
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	pinned := cudatest.Pinned(t, gpu)
	for name, c := range map[string]struct {
		mem      memory.Allocator
		up, down int
		marks    []int
	}{
		"plain":  {memory.DefaultAllocator, 16, 8, []int{4, 5}}, // one for each 16 MiB, and one for what is pending, unless the GPU is done
		"pinned": {pinned, 1, 1, []int{1}},
	} {
		rec := columnsOf(c.mem, 1, rows, false)
		for _, cores := range []int{1, 4} {
			before := runtime.GOMAXPROCS(cores)
			var batch *cdevice.RecordBatch
			made, report := calls(m, func() {
				var err error
				batch, err = cdevice.CopyToDevice(background, rec, gpu)
				require.NoError(t, err)
			})
			assert.Equal(t, c.up, made["cuMemcpyAsync"], name)
			assert.Contains(t, c.marks, made["cuEventRecord"], "%s: the staging memory is reused in parts", name)
			assert.Zero(t, made["cuMemsetD8Async"], "%s: there are no gaps", name)
			assert.Zero(t, report.Synchronisations, name)
			require.NoError(t, batch.Synchronize(background))
			made, _ = calls(m, func() {
				back, err := batch.CopyToHost(background, c.mem)
				require.NoError(t, err)
				assert.True(t, array.RecordEqual(rec, back), name)
				back.Release()
			})
			assert.Equal(t, c.down, made["cuMemcpyAsync"], name)
			assert.Equal(t, c.down-1, made["cuEventRecord"], name)
			batch.Release()
			require.NoError(t, gpu.Flush(background))
			runtime.GOMAXPROCS(before)
		}
		rec.Release()
	}
	pinned.Trim()
}

// Columns in page-locked memory are read by the device itself.
func TestPinnedColumnsAreNotStaged(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := cudatest.Pinned(t, gpu)
	rec := columnsOf(mem, 10, 100_000, false)
	made, report := calls(m, func() {
		batch, err := cdevice.CopyToDevice(background, rec, gpu)
		require.NoError(t, err)
		require.NoError(t, gpu.Legacy().Synchronize(background))
		batch.Release()
	})
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, report.StagedBytes)
	assert.Equal(t, 10, made["cuMemcpyAsync"])
	assert.Zero(t, made["cuMemHostAlloc"], "no staging buffer")
	rec.Release()
	mem.Trim()
}

// Small columns in page-locked memory are one copy, as those in plain memory are; large ones among them
// are read by the device itself. On a stream of the caller, whose work may still write them, the device
// reads them all in their turn.
func TestSmallPinnedColumnsAreOneCopy(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := cudatest.Pinned(t, gpu)
	small, plain := columnsOf(mem, 100, 1000, false), columnsOf(memory.DefaultAllocator, 100, 1000, false)
	mixed := mixedColumns(t, mem)
	s := newStream(t, gpu)
	for _, c := range []struct {
		name   string
		rec    arrow.RecordBatch
		opts   []cdevice.CopyOption
		copies int
		fills  int
	}{
		{"plain", plain, nil, 1, 0},
		{"small", small, nil, 1, 0},
		{"mixed", mixed, nil, 2 + 3, 1},
		{"small, on a stream", small, []cdevice.CopyOption{cdevice.WithStream(s)}, 100, 1},
	} {
		made, report := calls(m, func() {
			batch, err := cdevice.CopyToDevice(background, c.rec, gpu, c.opts...)
			require.NoError(t, err)
			require.NoError(t, gpu.Flush(background))
			back, err := batch.CopyToHost(background, nil)
			require.NoError(t, err)
			assert.True(t, array.RecordEqual(c.rec, back), c.name)
			back.Release()
			batch.Release()
		})
		assert.Equal(t, c.copies+1, made["cuMemcpyAsync"], "%s: and one back", c.name)
		assert.Equal(t, c.fills, made["cuMemsetD8Async"], c.name)
		assert.Zero(t, report.StagedBytes, "%s: the driver stages nothing", c.name)
		require.NoError(t, gpu.Flush(background))
	}
	for _, rec := range []arrow.RecordBatch{small, plain, mixed} {
		rec.Release()
	}
	mem.Trim()
}

// mixedColumns has small columns, and two large ones between them.
func mixedColumns(t *testing.T, mem memory.Allocator) arrow.RecordBatch {
	const rows = 10_000
	var fields []arrow.Field
	var columns []arrow.Array
	for i := range 14 {
		var b array.Builder = array.NewInt8Builder(mem)
		if i%5 == 4 {
			b = array.NewInt64Builder(mem)
		}
		for r := range rows {
			require.NoError(t, b.AppendValueFromString(fmt.Sprint(i*r%100)))
		}
		columns = append(columns, b.NewArray())
		b.Release()
		fields = append(fields, arrow.Field{Name: fmt.Sprint(i), Type: columns[i].DataType()})
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, rows)
	for _, c := range columns {
		c.Release()
	}
	return rec
}
