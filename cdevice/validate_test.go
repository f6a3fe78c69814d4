package cdevice_test

import (
	"context"
	"fmt"
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

// ValidateFull of batches and arrays that are not imported, and its callers.
// badinput_contents_test.go tests imported ones.

// validThroughout validates an array, slices of it, and its children.
func validThroughout(t *testing.T, a *cdevice.Array) {
	t.Helper()
	nulls := a.NullCount()
	assert.NoError(t, a.ValidateFull(background))
	assert.Equal(t, nulls, a.NullCount(), "it is not changed")
	for i := range min(a.Len(), 3) {
		for _, j := range []int64{i, a.Len() - i/2, a.Len()} {
			part, err := a.Slice(min(i, j), j)
			require.NoError(t, err)
			assert.NoError(t, part.ValidateFull(background), "%d to %d", i, j)
			part.Release()
		}
	}
	for i := range a.NumChildren() {
		child := a.Child(i)
		validThroughout(t, child)
		child.Release()
	}
}

// A batch that was built in page-locked memory is asked of the driver, as an imported one is.
func TestWrappedPinnedMemoryIsAskedOfTheDriver(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	b := array.NewStringBuilder(cudatest.Pinned(t, m.GPUs[0]))
	b.AppendStringValues([]string{"a", "bb"}, nil)
	arr := b.NewArray()
	b.Release()
	a, err := cdevice.WrapArray(arr, m.GPUs[0].Pinned())
	arr.Release()
	require.NoError(t, err)
	m.Sim.ResetCounters()
	assert.NoError(t, a.ValidateFull(background))
	assert.NotZero(t, m.Sim.Calls(""))
	a.Release()

	elsewhere, err := cdevice.WrapArray(fromJSON(t, arrow.BinaryTypes.String, `["a","bb"]`), m.GPUs[0].Pinned())
	require.NoError(t, err)
	assert.ErrorContains(t, elsewhere.ValidateFull(background), "memory of cpu, want memory that the CPU can access, page-locked or managed")
	elsewhere.Release()
}

// ValidateFull reads the memory of our own copies, even if their properties are known.
func TestValidationReadsCopiesThatWereMadeHere(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	for name, row := range map[string]struct {
		dt         arrow.DataType
		text       string
		buffer, at int
		want       string
	}{
		"offsets":         {arrow.BinaryTypes.String, `["a","bb"]`, 1, 8, "cdevice: validate: array.offsets[2] = -1, want 0 to "},
		"views":           {arrow.BinaryTypes.StringView, `["a","bb"]`, 1, 28, "cdevice: validate: array.views[1].bytes[12] = 255, want 0 behind a value of 2 bytes: invalid"},
		"type ids":        {arrow.DenseUnionOf([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int32}}, []int8{3}), `[[3,1],[3,2],[3,3],[3,4],[3,5]]`, 0, 1, "cdevice: validate: array.type_ids[1] = -1"},
		"offsets, nested": {arrow.ListOf(arrow.BinaryTypes.String), `[["a"],["bb"]]`, 1, 8, "cdevice: validate: array.offsets[2] = -1, want at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := kept(cdevice.WrapArray(fromJSON(t, row.dt, row.text), device.CPUDevice()))(t)
			a := kept(w.CopyTo(background, gpu))(t)
			require.NoError(t, a.ValidateFull(background))
			require.NoError(t, gpu.Memset(a.Buffers()[row.buffer]+device.Ptr(row.at), 0xff, 4, nil))
			require.NoError(t, gpu.Legacy().Synchronize(background))
			err := a.ValidateFull(background)
			assert.ErrorContains(t, err, row.want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		})
	}
}

// notText is a batch with a text that is none.
func notText(t testing.TB) *cdevice.RecordBatch {
	t.Helper()
	data := array.NewData(arrow.BinaryTypes.String, 1, []*memory.Buffer{nil, memory.NewBufferBytes([]byte{0, 0, 0, 0, 1, 0, 0, 0}), memory.NewBufferBytes([]byte{0xff})}, nil, 0, 0)
	defer data.Release()
	arr := array.MakeFromData(data)
	defer arr.Release()
	rec := array.NewRecordBatch(textSchema, []arrow.Array{arr}, 1)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	return b
}

var textSchema = arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)

func TestErrorOfAWrappedBatch(t *testing.T) {
	checkLeaks(t)
	b := notText(t)
	err := b.ValidateFull(background)
	assert.EqualError(t, err, "cdevice: validate: column[0].values[0], want valid UTF-8: invalid")
	var fe *cdevice.FieldError
	require.ErrorAs(t, err, &fe)
	assert.Equal(t, "validate", fe.Op)
	assert.Equal(t, "column[0].values[0]", fe.Field)
	view, err := b.HostView(background)
	require.NoError(t, err, "it is as it was")
	view.Release()
	column := b.Column(0)
	assert.EqualError(t, column.ValidateFull(background), "cdevice: validate: array.values[0], want valid UTF-8: invalid")
	column.Release()
	b.Release()
	assert.EqualError(t, b.ValidateFull(background), "cdevice: validate: RecordBatch: invalid: already released")
}

// The end of the context ends a wait for the event.
func TestValidationWaitsWithItsContext(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{err: context.Canceled}
	testEvents[41] = event
	a, _ := onDevice(t, extDev, 41)
	defer a.Release()
	assert.ErrorIs(t, a.ValidateFull(background), context.Canceled)
	assert.Equal(t, 1, event.waits)
	event.err = nil
	assert.NoError(t, a.ValidateFull(background))
	assert.Equal(t, 2, event.waits)
	assert.Equal(t, 2, event.closes)
}

// The contents of a wide batch in memory of a GPU are read in parts, of which each is validated.
func TestLargeContentsOnAGPU(t *testing.T) {
	checkLeaks(t)
	const size = 40 << 20
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	text, err := gpu.Allocate(background, size, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(text.Ptr(), 'a', size, nil))
	offsets, err := gpu.Allocate(background, 64, nil)
	require.NoError(t, err)
	host := []int32{0, size / 2, size}
	require.NoError(t, gpu.Copy([]device.Range{{Dst: offsets.Ptr(), Src: device.Ptr(sliceAddress(host)), Size: 12}}, gpu.Legacy()))
	require.NoError(t, gpu.Legacy().Synchronize(background))
	bad, err := gpu.Allocate(background, size, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(bad.Ptr(), 'a', size, nil))
	require.NoError(t, gpu.Memset(bad.Ptr()+size-1, 0xff, 1, nil))
	require.NoError(t, gpu.Legacy().Synchronize(background))

	for at := range 5 {
		fields, data := make([]arrow.Field, 4), make([]cdevice.ArrayData, 4)
		for i := range fields {
			fields[i] = arrow.Field{Name: "s", Type: arrow.BinaryTypes.String}
			data[i] = cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, offsets.Ptr(), text.Ptr()}}
			if i == at {
				data[i].Buffers[2] = bad.Ptr()
			}
		}
		b, err := cdevice.NewRecordBatch(gpu, arrow.NewSchema(fields, nil), 2, data, cdevice.Lifetime{})
		require.NoError(t, err)
		err = b.ValidateFull(background)
		if at == len(fields) {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, fmt.Sprintf("cdevice: validate: column[%d].values[1], want valid UTF-8", at))
		}
		b.Release()
	}
	assert.Less(t, gpu.ReadStats().Pinned.Peak, int64(3*size), "no more than two columns at once")
	for _, mem := range []device.Memory{text, offsets, bad} {
		require.NoError(t, mem.Free(nil))
	}
}
