package cdevice_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Plain structs of memory that a GPU fills: the host reads it when the export is over, and
// the simulator reports a read that no wait orders.

// readPlain imports a plain batch and reads it as the host does.
func readPlain(t *testing.T, m *cudatest.Machine, want arrow.RecordBatch, out *cdata.CArrowArray) {
	t.Helper()
	column := abi.At[abi.ArrowArray](children(plainArray(out))[0])
	m.HostRead(device.Ptr(abi.Slice[uintptr](column.Buffers, 2)[1]), 8*column.Length)
	back, err := cdevice.ImportRecordBatchWithSchema(out, want.Schema())
	require.NoError(t, err)
	view, err := back.HostView(background)
	require.NoError(t, err)
	assert.True(t, array.RecordEqual(want, view), "want %v\ngot  %v", want, view)
	view.Release()
	back.Release()
}

// readableKinds are the kinds of memory of a GPU that the host reads.
func readableKinds(gpu *cudaalloc.Device) []*cudaalloc.Device {
	kinds := []*cudaalloc.Device{gpu.Pinned()}
	if gpu.Managed().CPUAccessible() {
		kinds = append(kinds, gpu.Managed())
	}
	return kinds
}

// A copy to page-locked or managed memory has an event, which a plain struct has not.
func TestGPUAsCPUWaitsForACopy(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		rec := columnsOf(memory.DefaultAllocator, 1, 1000, false)
		defer rec.Release()
		for _, dev := range readableKinds(m.GPUs[0]) {
			b, err := cdevice.CopyToDevice(background, rec, dev)
			require.NoError(t, err)
			out := garbagePlain()
			assert.ErrorContains(t, cdevice.ExportRecordBatch(b, out, nil), "want none: AsCPU waits for it")
			require.NoError(t, exportMade(out, nil)(b.AsCPU(background)))
			b.Release()
			readPlain(t, m, rec, out)
			r, err := copyReader(background, repeatedReader(t, rec, 3), dev)
			require.NoError(t, err)
			s := exportPlain(t, made(t, r)(r.AsCPU(background)))
			for range 3 {
				out := garbagePlain()
				require.Zero(t, bridge.CallPlainGetNext(plainStream(s), plainArray(out)))
				readPlain(t, m, rec, out)
			}
			cdevice.ReleaseStruct(s)
		}
		require.NoError(t, m.GPUs[0].Flush(background))
	})
	streamsEnd(t)
}

// repeatedReader is an arrow-go reader of the same batch, n times.
func repeatedReader(t *testing.T, rec arrow.RecordBatch, n int) array.RecordReader {
	t.Helper()
	all := make([]arrow.RecordBatch, n)
	for i := range all {
		all[i] = rec
	}
	rdr, err := array.NewRecordReader(rec.Schema(), all)
	require.NoError(t, err)
	t.Cleanup(rdr.Release)
	return rdr
}

// Work on a stream is still filling the memory.
func TestGPUAsCPUWaitsForARecordedEvent(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		source := columnsOf(memory.DefaultAllocator, 1, 1000, false)
		defer source.Release()
		there, err := copyArray(background, source.Column(0), gpu)
		require.NoError(t, err)
		defer there.Release()
		for _, mem := range hostAllocators(t, gpu) {
			target := columnsOf(mem, 1, 1000, false)
			b, err := cdevice.WrapRecordBatch(target, mem.Device())
			require.NoError(t, err)
			producer := newStream(t, gpu)
			require.NoError(t, there.WaitOn(producer))
			values := target.Column(0).(*array.Int64).Int64Values()
			at := device.Ptr(addressOf(&values[0]))
			require.NoError(t, gpu.Copy([]device.Range{{Dst: at, Src: there.Buffers()[1], Size: 8000}}, producer))
			out := garbagePlain()
			recorded, err := b.RecordEvent(producer)
			require.NoError(t, err)
			require.NoError(t, exportMade(out, nil)(recorded.AsCPU(background)))
			recorded.Release()
			readPlain(t, m, source, out)
			b.Release()
			target.Release()
		}
		require.NoError(t, gpu.Flush(background))
	})
}

// The context ends the wait for a stream that is stuck.
func TestGPUContextEndsAsCPUOfAStuckStream(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := cudatest.Pinned(t, gpu)
	rec := columnsOf(mem, 1, 10, false)
	b, err := cdevice.WrapRecordBatch(rec, mem.Device())
	require.NoError(t, err)
	rec.Release()
	stuck := newStream(t, gpu)
	open := m.Hold(t, stuck)
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	recorded, err := b.RecordEvent(stuck)
	require.NoError(t, err)
	ends(t, "a batch", context.DeadlineExceeded, func() error {
		_, err := recorded.AsCPU(ctx)
		return err
	})

	out := garbagePlain()
	r, err := cdevice.NewRecordReader(b.Schema(), device.CUDAHost, yielding(nil, recorded))
	require.NoError(t, err)
	brief, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	s := garbagePlainStream()
	r = made(t, r)(r.AsCPU(brief))
	require.NoError(t, cdevice.ExportRecordReader(r, s))
	r.Release()
	start := time.Now()
	assert.EqualValues(t, syscall.ETIMEDOUT, bridge.CallPlainGetNext(plainStream(s), plainArray(out)))
	assert.Less(t, time.Since(start), 2*time.Second)
	cdevice.ReleaseStruct(s)
	recorded.Release()
	open()
	b.Release()
	require.NoError(t, gpu.Flush(background))
}

// A consumer of a plain struct works on the CPU: its release waits for no work of the GPU,
// which the release of a device struct does.
func TestGPUPlainReleaseWaitsForNoDevice(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := cudatest.Pinned(t, gpu)
	for range 2 {
		waits := 0
		rec := columnsOf(mem, 1, 10, false)
		b, err := cdevice.WrapRecordBatch(rec, waitCounting{gpu.Pinned(), &waits})
		require.NoError(t, err)
		rec.Release()
		column := b.Column(0)
		outs := []*cdata.CArrowArray{garbagePlain(), garbagePlain()}
		require.NoError(t, cdevice.ExportRecordBatch(b, outs[0], nil))
		require.NoError(t, cdevice.ExportArray(column, outs[1], nil))
		column.Release()
		b.Release()
		busy := newStream(t, gpu)
		open := m.Hold(t, busy)
		for _, out := range outs {
			live := mem.ReadStats().Pinned.Live
			assert.NotZero(t, live)
			cdevice.ReleaseStruct(out)
		}
		live := mem.ReadStats().Pinned.Live
		assert.Zero(t, live, "the memory is back, although the GPU is busy")
		assert.Zero(t, waits)
		open()
	}
	require.NoError(t, gpu.Flush(background))
}

func TestPlainExportRefusesMemoryOfTheGPU(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{NoConcurrentManaged: true})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1, 10, false)
	defer rec.Release()
	for _, dev := range []*cudaalloc.Device{gpu, gpu.Managed()} {
		b, err := cdevice.CopyToDevice(background, rec, dev)
		require.NoError(t, err)
		err = cdevice.ExportRecordBatch(b, garbagePlain(), nil)
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "RecordBatch.DeviceID = "+dev.ID().String()+", want memory that the CPU can access")

		r, err := cdevice.NewRecordReader(b.Schema(), dev.ID().Type, yielding(nil, b))
		require.NoError(t, err)
		s := garbagePlainStream()
		require.NoError(t, cdevice.ExportRecordReader(r, s))
		assert.EqualValues(t, syscall.ENOTSUP, bridge.CallPlainGetNext(plainStream(s), plainArray(garbagePlain())))
		assert.Contains(t, plainError(s), "RecordBatch.DeviceID = "+dev.ID().String()+", want memory that the CPU can access")
		cdevice.ReleaseStruct(s)
		r.Release()
		b.Release()
	}
	require.NoError(t, gpu.Flush(background))
}
