package cdevice_test

import (
	"fmt"
	"iter"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// metal exports a batch of every kind of column as ArrowMetal and nanoarrow do, whose memory the
// host can read although it is labelled as the GPU's.
func metal(t *testing.T, ordinal int64) (in *cdevice.CArrowDeviceArray, want arrow.RecordBatch) {
	t.Helper()
	want = twoColumns(t)
	in = new(cdevice.CArrowDeviceArray)
	b := wrap(t, want)
	require.NoError(t, cdevice.ExportRecordBatch(b, in, nil))
	in.DeviceType, in.DeviceID = int32(device.Metal), ordinal
	return in, want
}

// Memory that the importer declares readable is read everywhere, and keeps its label.
func TestAssumedHostReadable(t *testing.T) {
	checkLeaks(t)
	for _, ordinal := range []int64{-1, 0} {
		in, want := metal(t, ordinal)
		b, err := validated(cdevice.ImportRecordBatchWithSchema(in, want.Schema(), cdevice.WithCPUAccessible()))
		require.NoError(t, err)
		assert.Equal(t, device.ID{Type: device.Metal, Ordinal: ordinal}, b.DeviceID())
		view, err := b.HostView(background)
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(want, view))
		view.Release()
		part, err := b.Slice(1, 4)
		require.NoError(t, err)
		rec, err := part.CopyToHost(background, nil)
		require.NoError(t, err)
		slice := want.NewSlice(1, 4)
		assert.True(t, array.RecordEqual(slice, rec))
		slice.Release()
		rec.Release()
		col := part.Column(0)
		nulls, err := col.CountNulls(background)
		require.NoError(t, err)
		assert.EqualValues(t, 1, nulls)
		col.Release()
		part.Release()

		out, outSchema := garbageArray(), garbageSchema()
		require.NoError(t, exportMade(out, outSchema)(b.AsCPU(background)))
		assert.EqualValues(t, device.CPU, out.DeviceType)
		back, err := cdevice.ImportRecordBatch(out, outSchema)
		require.NoError(t, err)
		view, err = back.HostView(background)
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(want, view))
		view.Release()
		back.Release()

		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
		assert.EqualValues(t, device.Metal, out.DeviceType, "the label stays")
		cdevice.ReleaseStruct(out)
		b.Release()
	}
}

// Empty columns with NULL buffers are read like the host's own.
func TestAssumedHostReadableWithNullBuffers(t *testing.T) {
	checkLeaks(t)
	a := newArena()
	defer a.free()
	in := new(cdevice.CArrowDeviceArray)
	empty := fromJSON(t, arrow.BinaryTypes.String, `[]`)
	w, err := cdevice.WrapArray(empty, device.CPUDevice())
	require.NoError(t, err)
	require.NoError(t, cdevice.ExportArray(w, in, nil))
	w.Release()
	buffers := allocC[uintptr](a, 3)
	in.Array.Buffers = sliceAddress(buffers)
	in.DeviceType = int32(device.Metal)
	got, err := cdevice.ImportArrayWithType(in, arrow.BinaryTypes.String, cdevice.WithCPUAccessible())
	require.NoError(t, err)
	view, err := got.HostView(background)
	require.NoError(t, err)
	assert.Zero(t, view.Len())
	view.Release()
	got.Release()
}

// Full validation reads the contents of such memory.
func TestAssumedHostReadableIsValidated(t *testing.T) {
	checkLeaks(t)
	b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
	defer b.Release()
	b.Append([]byte{0xff})
	arr := b.NewArray()
	defer arr.Release()
	for _, ordinal := range []int64{-1, 0} {
		w, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		in := new(cdevice.CArrowDeviceArray)
		require.NoError(t, cdevice.ExportArray(w, in, nil))
		w.Release()
		in.DeviceType, in.DeviceID = int32(device.Metal), ordinal
		_, err = validated(cdevice.ImportArrayWithType(in, arrow.BinaryTypes.String, cdevice.WithCPUAccessible()))
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.ErrorContains(t, err, "UTF-8")
	}
}

// An event that no backend can wait for is refused: a read before it would see other values.
func TestAssumedHostReadableWithAnEvent(t *testing.T) {
	checkLeaks(t)
	cell := new(uintptr)
	for _, ordinal := range []int64{-1, 0} {
		in, want := metal(t, ordinal)
		in.SyncEvent = addressOf(cell)
		_, err := cdevice.ImportRecordBatchWithSchema(in, want.Schema(), cdevice.WithCPUAccessible())
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "ArrowDeviceArray.sync_event = 0x")
		assert.ErrorContains(t, err, "want NULL, or a device that can wait for it (WithCPUAccessible)")
		assert.Zero(t, in.Array.Release)
	}

	// A backend can: it is waited for.
	event := &testEvent{}
	testEvents[77] = event
	*cell = 77
	in, want := metal(t, 0)
	in.DeviceType, in.SyncEvent = int32(device.ExtDev), addressOf(cell)
	b, err := cdevice.ImportRecordBatchWithSchema(in, want.Schema(), cdevice.WithCPUAccessible())
	require.NoError(t, err)
	view, err := b.HostView(background)
	require.NoError(t, err)
	assert.Equal(t, 1, event.waits)
	view.Release()
	b.Release()
}

// A GPU that is open in this process detects the error.
func TestAssumedHostReadableOfAGPU(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	b := kept(cdevice.CopyToDevice(background, twoColumns(t), m.GPUs[0]))(t)
	out, outSchema := garbageArray(), garbageSchema()
	require.NoError(t, b.Synchronize(background))
	require.NoError(t, cdevice.ExportRecordBatch(b, out, outSchema))
	_, err := validated(cdevice.ImportRecordBatch(out, outSchema, cdevice.WithDevice(m.GPUs[0]), cdevice.WithCPUAccessible()))
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}

// Without a backend no event can be waited for before release, either.
func TestReleaseAfterEventNeedsABackend(t *testing.T) {
	checkLeaks(t)
	cell := new(uintptr)
	in, want := metal(t, 0)
	in.SyncEvent = addressOf(cell)
	_, err := cdevice.ImportRecordBatchWithSchema(in, want.Schema(), cdevice.WithReleaseAfterEvent())
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "want NULL, or a device that can wait for it (WithReleaseAfterEvent)")
	assert.Zero(t, in.Array.Release)

	in, want = metal(t, 0)
	b, err := cdevice.ImportRecordBatchWithSchema(in, want.Schema(), cdevice.WithReleaseAfterEvent())
	require.NoError(t, err, "no event")
	b.Release()
}

// Streams of such memory are the CPU's as far as each of their items is.
func TestStreamsOfAssumedHostReadable(t *testing.T) {
	checkLeaks(t)
	want := numbered(t, 3)
	for _, kind := range []device.Type{device.CUDA, device.ROCM, device.Metal} {
		for name, opts := range map[string][]cdevice.ImportOption{"declared": {cdevice.WithCPUAccessible()}, "not declared": nil} {
			t.Run(fmt.Sprintf("%s, %s", kind, name), func(t *testing.T) {
				open := func() *script {
					s := newScript(t, want...)
					s.stream.DeviceType = int32(kind)
					next := s.getNext
					s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
						code := next(call, out)
						out.DeviceType, out.DeviceID = int32(kind), 0
						return code
					}
					return s
				}
				ends := func(read int, err error) {
					if opts != nil {
						assert.NoError(t, err)
						assert.Equal(t, len(want), read)
					} else {
						assert.ErrorIs(t, err, device.ErrNotSupported)
						assert.ErrorContains(t, err, ".DeviceID = "+kind.String())
						assert.Zero(t, read)
					}
				}
				r, err := cdevice.ImportRecordReader(open().stream, opts...)
				require.NoError(t, err)
				cpu := made(t, r)(r.AsCPU(background))
				ends(count(cpu.All()))
				cpu.Release()

				arrays, err := cdevice.ImportArrayReader(open().stream, opts...)
				require.NoError(t, err)
				cpuArrays := made(t, arrays)(arrays.AsCPU(background))
				ends(count(cpuArrays.All()))
				cpuArrays.Release()

				out := garbagePlainStream()
				r, err = cdevice.ImportRecordReader(open().stream, opts...)
				require.NoError(t, err)
				require.NoError(t, cdevice.ExportRecordReader(r, out))
				r.Release()
				r, err = cdevice.ImportRecordReader(out)
				require.NoError(t, err)
				ends(count(r.All()))
				r.Release()

				arrays, err = cdevice.ImportArrayReader(open().stream, opts...)
				require.NoError(t, err)
				require.NoError(t, cdevice.ExportArrayReader(arrays, out))
				arrays.Release()
				arrays, err = cdevice.ImportArrayReader(out)
				require.NoError(t, err)
				ends(count(arrays.All()))
				arrays.Release()
			})
		}
	}
}

// count is how many items there are before an error.
func count[T any](all iter.Seq2[T, error]) (n int, err error) {
	for _, err := range all {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
