package cdevice_test

import (
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
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Where the host must not touch managed memory while the GPU works, it is memory of a
// device like any other: copied by the driver, and not viewed.
func TestManagedMemoryThatIsTheGPUsAlone(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{NoConcurrentManaged: true})
	gpu := m.GPUs[0]
	managed := gpu.Managed()
	m.Sim.ResetCounters()
	assert.False(t, managed.CPUAccessible())
	assert.True(t, gpu.Pinned().CPUAccessible())
	assert.Zero(t, m.Sim.Calls(""), "asked when the GPU was opened")
	const why = "must not touch"

	rec := columnsOf(memory.DefaultAllocator, 3, 100, true)
	defer rec.Release()
	_, err := cudaalloc.NewManagedAllocator(gpu)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, why)
	for _, wrap := range []func() error{
		func() error { _, err := cdevice.WrapRecordBatch(rec, managed); return err },
		func() error { _, err := cdevice.WrapArray(rec.Column(0), managed); return err },
	} {
		err := wrap()
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, why)
	}

	block, err := managed.Allocate(background, 64, nil)
	require.NoError(t, err)
	assert.True(t, gpu.PageLocked(block.Ptr(), 64), "an upload leaves it to the driver too, and does not stage it")
	require.NoError(t, block.Free(nil))

	busy := newStream(t, gpu) // the GPU works all the time
	open := m.Hold(t, busy)
	other, err := gpu.Allocate(background, 64, busy)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(other.Ptr(), 1, 64, busy))

	batch, err := cdevice.CopyToDevice(background, rec, managed)
	require.NoError(t, err)
	imported := sent(t, batch, managed)
	again, err := imported.CopyTo(background, managed)
	require.NoError(t, err)
	for _, b := range []*cdevice.RecordBatch{imported, again} {
		column := b.Column(2)
		refusals := map[string]error{}
		_, refusals["HostView"] = b.HostView(background)
		_, refusals["HostView of a column"] = column.HostView(background)
		_, refusals["AsCPU"] = b.AsCPU(background)
		for name, err := range refusals {
			assert.ErrorIs(t, err, device.ErrNotSupported, name)
			assert.ErrorContains(t, err, why, name)
		}
		nulls, err := column.CountNulls(background)
		require.NoError(t, err)
		assert.Zero(t, nulls)
		_, err = b.NumBytes(background)
		require.NoError(t, err)
		column.Release()
		sameBatchOnHost(t, rec, b)
		part, err := b.Slice(3, 50)
		require.NoError(t, err)
		want := rec.NewSlice(3, 50)
		sameBatchOnHost(t, want, part)
		want.Release()
		part.Release()
	}
	r, err := cdevice.NewRecordReader(rec.Schema(), device.CUDAManaged, func(yield func(*cdevice.RecordBatch, error) bool) {
		yield(again, nil)
	})
	require.NoError(t, err)
	host := r.HostReader(background, nil)
	r.Release()
	require.True(t, host.Next(), "%v", host.Err())
	assert.True(t, array.RecordEqual(rec, host.RecordBatch()))
	host.Release()
	imported.Release()
	again.Release()
	open()
	require.NoError(t, other.Free(busy))
	require.NoError(t, gpu.Flush(background))
}

// Without a driver to ask, managed memory is read by the host, as its device type allows.
func TestManagedMemoryWithoutADriver(t *testing.T) {
	host, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`), device.CPUDevice())
	require.NoError(t, err)
	out := garbageArray()
	require.NoError(t, cdevice.ExportArray(host, out, nil))
	host.Release()
	out.DeviceType, out.DeviceID = int32(device.CUDAManaged), 99 // a GPU that is nowhere
	a, err := cdevice.ImportArrayWithType(out, arrow.PrimitiveTypes.Int64)
	require.NoError(t, err)
	view, err := a.HostView(background)
	require.NoError(t, err)
	view.Release()
	a.Release()
}
