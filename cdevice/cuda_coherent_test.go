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

// Memory of GPUs that use the page tables of the CPU: of it, the CPU reads what it reads elsewhere, and some of that
// is declared as the GPU's.

// declared sends a batch through C structs whose producer declares its memory as the GPU's, as cuDF does whichever
// resource has allocated it.
func declared(t *testing.T, b *cdevice.RecordBatch, gpu *cudaalloc.Device) *cdevice.RecordBatch {
	t.Helper()
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
	b.Release()
	out.DeviceType, out.DeviceID = int32(device.CUDA), gpu.ID().Ordinal
	return kept(cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu)))(t)
}

// assertInPlace checks that a view has the memory of a batch, without a copy and without an allocation of the driver.
func assertInPlace(t *testing.T, m *cudatest.Machine, b *cdevice.RecordBatch, want arrow.RecordBatch) {
	t.Helper()
	for _, gpu := range m.GPUs {
		require.NoError(t, gpu.Flush(background)) // in the background it would be counted
	}
	made, r := calls(m, func() {
		view, err := b.HostView(background)
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(want, view))
		for i := range b.NumCols() {
			column := b.Column(i)
			buffers := column.Buffers()
			for k, own := range view.Column(i).Data().Buffers() {
				if own != nil && own.Len() > 0 {
					assert.EqualValues(t, buffers[k], addressOf(&own.Bytes()[0]))
				}
			}
			column.Release()
		}
		view.Release()
	})
	assert.Zero(t, r.Bytes)
	for call := range made {
		assert.Contains(t, []string{"cuPointerGetAttributes", "cuEventQuery", "cuEventSynchronize"}, call)
	}
}

func TestMemoryOfTheCPUDeclaredAsAGPUs(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2, Coherent: 1})
	gpu, other := m.GPUs[0], m.GPUs[1]
	want := twoColumns(t)
	for name, make := range map[string]func(on *cudaalloc.Device) *cdevice.RecordBatch{
		"managed": func(on *cudaalloc.Device) *cdevice.RecordBatch {
			b, err := cdevice.CopyToDevice(background, want, on.Managed())
			require.NoError(t, err)
			return b
		},
		"pinned": func(on *cudaalloc.Device) *cdevice.RecordBatch {
			b, err := cdevice.CopyToDevice(background, want, on.Pinned())
			require.NoError(t, err)
			return b
		},
		"plain": func(*cudaalloc.Device) *cdevice.RecordBatch {
			b, err := cdevice.WrapRecordBatch(want, device.CPUDevice())
			require.NoError(t, err)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := declared(t, make(gpu), gpu)
			require.NoError(t, b.ValidateFull(background))
			assertInPlace(t, m, b, want)
			assert.Equal(t, gpu.ID(), b.DeviceID(), "the label stays")
			column := b.Column(1)
			view, err := column.HostView(background)
			require.NoError(t, err)
			assert.True(t, array.Equal(want.Column(1), view))
			view.Release()
			require.NoError(t, column.ValidateFull(background))
			cpu := made(t, column)(column.AsCPU(background))
			assert.Equal(t, device.CPU, cpu.DeviceID().Type)
			cpu.Release()
			copied, err := b.CopyToHost(background, nil) // by the GPU
			require.NoError(t, err)
			assert.True(t, array.RecordEqual(want, copied))
			copied.Release()
			out := garbagePlain()
			require.NoError(t, exportMade(out, nil)(b.AsCPU(background)))
			cdevice.ReleaseStruct(out)

			b = declared(t, make(other), other)
			_, err = b.HostView(background)
			assert.ErrorIs(t, err, device.ErrNotSupported, "this GPU has page tables of its own")
			_, err = b.AsCPU(background)
			assert.ErrorIs(t, err, device.ErrNotSupported)
			assert.Error(t, b.ValidateFull(background))
		})
	}
	elsewhere, err := cdevice.CopyToDevice(background, want, other.Managed())
	require.NoError(t, err)
	_, err = declared(t, elsewhere, gpu).HostView(background)
	assert.ErrorIs(t, err, device.ErrNotSupported, "of another GPU")
}

// The memory that the GPU allocates as its own is not the CPU's there either.
func TestMemoryOfACoherentGPU(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Coherent: 1})
	gpu := m.GPUs[0]
	want := twoColumns(t)
	for _, dev := range []*cudaalloc.Device{gpu, gpu.Shareable()} {
		b, err := cdevice.CopyToDevice(background, want, dev)
		require.NoError(t, err)
		_, err = b.HostView(background)
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "the CPU cannot access memory of cuda:0")
		require.NoError(t, b.ValidateFull(background))
		rec, err := b.CopyToHost(background, nil)
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(want, rec))
		rec.Release()
		b.Release()
	}
}

// A reader for arrow-go copies nothing where the GPU uses the page tables of the CPU, and the same batches elsewhere.
func TestHostReaderOfMemoryDeclaredAsAGPUs(t *testing.T) {
	checkLeaks(t)
	want := columnsOf(memory.DefaultAllocator, 3, 1000, false)
	defer want.Release()
	for coherent, bytes := range []int64{3 * 1000 * 8, 0} {
		m := cudatest.Simulated(t, cudasim.Options{Coherent: coherent})
		managed, err := cdevice.CopyToDevice(background, want, m.GPUs[0].Managed())
		require.NoError(t, err)
		b := declared(t, managed, m.GPUs[0])
		r, err := readerFunc(want.Schema(), device.CUDA, nextOf(nil, b, b), nil)
		require.NoError(t, err)
		require.NoError(t, m.GPUs[0].Flush(background))
		made, report := calls(m, func() {
			h := r.HostReader(background, nil)
			for h.Next() {
				assert.True(t, array.RecordEqual(want, h.RecordBatch()))
			}
			require.NoError(t, h.Err())
			h.Release()
		})
		r.Release()
		assert.Equal(t, 2*bytes, report.Bytes.DtoH)
		if coherent == 1 {
			assert.Equal(t, 2*3, made["cuPointerGetAttributes"], "once for each buffer")
		}
	}
}

// A view waits for the event of its batch, and for no other work.
func TestHostViewOfMemoryDeclaredAsAGPUsWaits(t *testing.T) {
	for name, o := range cudatest.Schedules() {
		if o.NoConcurrentManaged {
			continue
		}
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			o.Coherent = 1
			m := cudatest.Simulated(t, o)
			gpu := m.GPUs[0]
			want := twoColumns(t)
			open := m.Hold(t, newStream(t, gpu))
			defer open()
			managed, err := cdevice.CopyToDevice(background, want, gpu.Managed(), cdevice.WithStream(newStream(t, gpu)))
			require.NoError(t, err)
			b := declared(t, managed, gpu)
			view, err := b.HostView(background)
			require.NoError(t, err)
			defer view.Release()
			for i := range b.NumCols() {
				column := b.Column(i)
				for _, p := range column.Buffers() {
					if p != 0 {
						m.HostRead(p, 1)
					}
				}
				column.Release()
			}
			assert.True(t, array.RecordEqual(want, view))
		})
	}
}

// Contents are checked in place.
func TestMemoryDeclaredAsAGPUsIsValidated(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Coherent: 1})
	gpu := m.GPUs[0]
	binary := fromJSON(t, arrow.BinaryTypes.Binary, `["/w=="]`)
	a, err := copyArray(background, binary, gpu.Managed())
	require.NoError(t, err)
	out := garbageArray()
	require.NoError(t, cdevice.ExportArray(a, out, nil))
	a.Release()
	out.DeviceType = int32(device.CUDA)
	_, report := calls(m, func() {
		_, err = validated(cdevice.ImportArrayWithType(out, arrow.BinaryTypes.String, cdevice.WithDevice(gpu)))
	})
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "UTF-8")
	assert.Zero(t, report.Bytes.DtoH)
}

// Empty columns of a producer that has no memory for them.
func TestHostViewOfMemoryDeclaredAsAGPUsWithNullBuffers(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Coherent: 1})
	gpu := m.GPUs[0]
	a, err := cdevice.NewArray(gpu, arrow.BinaryTypes.String, cdevice.ArrayData{Buffers: []device.Ptr{0, 0, 0}}, cdevice.Lifetime{Release: func() {}})
	require.NoError(t, err)
	view, err := a.HostView(background)
	require.NoError(t, err)
	assert.Zero(t, view.Len())
	view.Release()
	a.Release()
}
