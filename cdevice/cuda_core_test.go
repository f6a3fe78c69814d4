package cdevice_test

import (
	"context"
	"strconv"
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
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestCoreDeviceHasNoOptionalInterfaces(t *testing.T) {
	var d any = coreDevice{device.CPUDevice()}
	_, stager := d.(device.Stager)
	_, memsetter := d.(device.Memsetter)
	_, copyStreamer := d.(device.CopyStreamer)
	_, prober := d.(device.Prober)
	assert.False(t, stager || memsetter || copyStreamer || prober)
}

// Every type, however it is presented, and parts of it: host -> device -> C -> device -> host.
func TestGPURoundTripThroughACoreDevice(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := coreDevice{m.GPUs[0]}
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				want, err := c.Array(memory.DefaultAllocator, v)
				require.NoError(t, err)
				defer want.Release()
				there, err := copyArray(background, want, gpu)
				require.NoError(t, err)
				defer there.Release()
				sameOnHost(t, want, there)
				back := throughC(t, there, cdevice.WithDevice(gpu))
				defer back.Release()
				sameOnHost(t, want, back)
				again, err := back.CopyTo(background, gpu)
				require.NoError(t, err)
				defer again.Release()
				sameOnHost(t, want, again)
				if n := int64(want.Len()); n > 3 {
					part, err := there.Slice(1, n-1)
					require.NoError(t, err)
					defer part.Release()
					wantPart := array.NewSlice(want, 1, n-1)
					defer wantPart.Release()
					sameOnHost(t, wantPart, part)
				}
			})
		}
	}
}

// A copy has read plain and page-locked memory when it returns, even if the device is busy; its
// gaps are zeros, which cuDF needs.
func TestGPUCopyToACoreDeviceIsWhole(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2, PageableAsync: true})
	pinned := cudatest.Pinned(t, m.GPUs[0])
	for name, mem := range map[string]memory.Allocator{"plain": memory.DefaultAllocator, "page-locked": pinned} {
		t.Run(name, func(t *testing.T) {
			gpu, other := coreDevice{m.GPUs[0]}, coreDevice{m.GPUs[1]}
			for _, gpu := range m.GPUs {
				poison(t, gpu)
			}
			rec, all := sparseBatch(mem), sparseBatch(memory.DefaultAllocator)
			defer all.Release()
			s := newStream(t, gpu)
			open := m.Hold(t, s)
			first, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(s))
			require.NoError(t, err)
			scribbleOver(rec)
			rec.Release()
			open()
			second := copiedPart(t, first, 16, 900, other)
			third := copiedPart(t, second, 8, 800, gpu)
			got, err := third.CopyToHost(background, nil)
			require.NoError(t, err)
			want := all.NewSlice(24, 816)
			assert.True(t, array.RecordEqual(want, got))
			want.Release()
			got.Release()
			require.NoError(t, third.Synchronize(background))
			out := garbageArray()
			require.NoError(t, exportMade(out, nil)(third.ForCuDF(background)))
			asCuDFWants(t, m.GPUs[0], abi.As[abi.ArrowArray](&out.Array))
			cdevice.ReleaseStruct(out)
			third.Release()
		})
	}
}

// poison fills memory that the next allocations get.
func poison(t *testing.T, gpu *cudaalloc.Device) {
	t.Helper()
	var used []device.Memory
	for range 20 {
		m, err := gpu.Allocate(background, 64<<10, nil)
		require.NoError(t, err)
		require.NoError(t, gpu.Memset(m.Ptr(), 0xff, m.Size(), nil))
		used = append(used, m)
	}
	for _, m := range used {
		require.NoError(t, m.Free(nil))
	}
}

// copiedPart is a copy of the rows of b, which it releases.
func copiedPart(t *testing.T, b *cdevice.RecordBatch, from, to int64, dev device.Device) *cdevice.RecordBatch {
	t.Helper()
	part, err := b.Slice(from, to)
	require.NoError(t, err)
	b.Release()
	defer part.Release()
	there, err := part.CopyTo(background, dev)
	require.NoError(t, err)
	return there
}

// sparseBatch has columns with nulls.
func sparseBatch(mem memory.Allocator) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "number", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	for i := range 1001 {
		if i%7 == 0 {
			b.Field(0).AppendNull()
			b.Field(1).AppendNull()
			continue
		}
		b.Field(0).(*array.Int32Builder).Append(int32(i))
		b.Field(1).(*array.StringBuilder).Append(strconv.Itoa(i))
	}
	return b.NewRecordBatch()
}

// scribbleOver overwrites the buffers of a batch whose memory the host can write.
func scribbleOver(rec arrow.RecordBatch) {
	for _, c := range rec.Columns() {
		for _, b := range c.Data().Buffers() {
			if b == nil {
				continue
			}
			for i := range b.Bytes() {
				b.Bytes()[i] = 0xee
			}
		}
	}
}

// A copy that its context ends leaves nothing behind.
func TestGPUCopyFromACoreDeviceIsCancelled(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := coreDevice{m.GPUs[0]}
	rec := columnsOf(memory.DefaultAllocator, 3, 1000, true)
	defer rec.Release()
	b, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	defer b.Release()
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = b.CopyToHost(ctx, nil)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = b.CopyTo(ctx, gpu)
	assert.ErrorIs(t, err, context.Canceled)
}

// Full validation needs a device that knows its memory.
func TestFullValidationNeedsAProber(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := coreDevice{m.GPUs[0]}
	rec := columnsOf(memory.DefaultAllocator, 1, 10, false)
	defer rec.Release()
	b, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
	b.Release()
	_, err = validated(cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu)))
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "device.Prober")
}
