package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// The driver calls that an operation may cost, counted by the simulator.

func TestImportAndExportAgainCallNothing(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1000, 3, true)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	require.NoError(t, gpu.Flush(background)) // in the background it would be counted
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(batch, out, schema))
	batch.Release()

	again, schemaAgain := garbageArray(), garbageSchema()
	made, _ := calls(m, func() {
		imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
		require.NoError(t, err)
		require.NoError(t, cdevice.ExportRecordBatch(imported, again, schemaAgain))
		imported.Release()
	})
	assert.Empty(t, made)

	imported, err := cdevice.ImportRecordBatch(again, schemaAgain, cdevice.WithDevice(gpu))
	require.NoError(t, err)
	made, report := calls(m, func() {
		size, err := imported.NumBytes(background)
		require.NoError(t, err)
		wrapped, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		want, err := wrapped.NumBytes(background)
		require.NoError(t, err)
		wrapped.Release()
		assert.Equal(t, want, size)
	})
	assert.Equal(t, 1000, made["cuMemcpyAsync"], "the offsets of each column")
	assert.Equal(t, 1, report.Synchronisations)
	made, report = calls(m, func() {
		back, err := imported.CopyToHost(background, nil)
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(rec, back))
		back.Release()
	})
	assert.LessOrEqual(t, made["cuMemcpyAsync"], 2000)
	assert.Equal(t, 2, report.Synchronisations, "for the offsets, and for the data")
	imported.Release()
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

		pinned := hostpinned.New(gpu, 0)
		for _, mem := range []memory.Allocator{pinned, nil} {
			made, report = calls(m, func() {
				back, err := batch.CopyToHost(background, mem)
				require.NoError(t, err)
				assert.True(t, array.RecordEqual(rec, back))
				back.Release()
			})
			assert.LessOrEqual(t, made["cuMemcpyAsync"], 2)
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

// Columns in page-locked memory are read by the device itself.
func TestPinnedColumnsAreNotStaged(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := hostpinned.New(gpu, 0)
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

func TestExportCalls(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	rec := columnsOf(memory.DefaultAllocator, 100, 10, true)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, m.GPUs[0])
	require.NoError(t, err)
	require.NoError(t, m.GPUs[0].Flush(background)) // in the background it would be counted
	out := garbageArray()
	made, _ := calls(m, func() { require.NoError(t, cdevice.ExportRecordBatch(batch, out, nil)) })
	assert.Empty(t, made, "its event is there already")
	assert.NotZero(t, out.SyncEvent)
	cdevice.ReleaseCArrowDeviceArray(out)

	s := newStream(t, m.GPUs[0])
	for round, most := range []int{1, 0} {
		made, report := calls(m, func() { require.NoError(t, exportMade(out, nil)(batch.RecordEvent(s))) })
		assert.LessOrEqual(t, made["cuEventCreate"], most, "round %d", round)
		assert.Equal(t, 1, made["cuEventRecord"])
		assert.Zero(t, report.Synchronisations)
		require.NoError(t, s.Synchronize(background))
		cdevice.ReleaseCArrowDeviceArray(out)
		require.NoError(t, m.GPUs[0].Flush(background))
	}
	batch.Release()
}
