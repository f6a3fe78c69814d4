package cdevice_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

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
	"github.com/arrowdevice/arrowdevice/internal/testing/pages"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// newStream is a stream that is closed at the end of the test.
func newStream(t *testing.T, dev device.Device) device.Stream {
	t.Helper()
	s, err := dev.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// hostAllocators are those that the GPU has.
func hostAllocators(t *testing.T, gpu *cudaalloc.Device) []hostAllocator {
	all := []hostAllocator{cudatest.Pinned(t, gpu)}
	managed, err := cudaalloc.NewManagedAllocator(gpu)
	if err != nil {
		require.ErrorIs(t, err, device.ErrNotSupported)
		return all
	}
	return append(all, managed)
}

// hostAllocator is an allocator of memory that a GPU and the host use.
type hostAllocator interface {
	memory.Allocator
	Device() *cudaalloc.Device
}

// copyArray copies an array of arrow-go to a device.
func copyArray(ctx context.Context, arr arrow.Array, dev device.Device, opts ...cdevice.CopyOption) (*cdevice.Array, error) {
	a, err := cdevice.WrapArray(arr, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer a.Release()
	return a.CopyTo(ctx, dev, opts...)
}

// copyReader makes a reader of copies of a reader of arrow-go.
func copyReader(ctx context.Context, rdr array.RecordReader, dev device.Device, opts ...cdevice.CopyOption) (*cdevice.RecordReader, error) {
	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer r.Release()
	return r.CopyTo(ctx, dev, opts...)
}

// filled is device memory with these bytes, complete at the returned event.
func filled(t *testing.T, gpu device.Device, s device.Stream, b []byte) device.Memory {
	m, err := gpu.Allocate(background, int64(max(len(b), 1)), s)
	require.NoError(t, err)
	upload(t, gpu.(device.Stager), []device.Range{{Dst: m.Ptr(), Src: device.Ptr(addressOf(unsafe.SliceData(b))), Size: int64(len(b))}}, s)
	return m
}

// upload starts the copies of list on s.
func upload(t *testing.T, gpu device.Stager, list []device.Range, s device.Stream) {
	t.Helper()
	e, err := gpu.Upload(background, list, s)
	require.NoError(t, err)
	require.NoError(t, e.Close())
}

// filledByTwo is a batch of two columns, each filled on a stream of its own, and their later
// values. It has no event yet.
func filledByTwo(t *testing.T, gpu device.Device, a, b device.Stream) (batch *cdevice.RecordBatch, want arrow.RecordBatch) {
	t.Helper()
	want = columnsOf(memory.DefaultAllocator, 2, 500, false)
	var columns []cdevice.ArrayData
	var memories []device.Memory
	for i, s := range []device.Stream{a, b} {
		m := filled(t, gpu, s, arrow.Int64Traits.CastToBytes(want.Column(i).(*array.Int64).Int64Values()))
		memories = append(memories, m)
		columns = append(columns, cdevice.ArrayData{Length: 500, Buffers: []device.Ptr{0, m.Ptr()}})
	}
	batch, err := cdevice.NewRecordBatch(gpu, want.Schema(), 500, columns, cdevice.Lifetime{Release: func() {
		for _, m := range memories {
			assert.NoError(t, m.FreeAfter(nil))
		}
	}})
	require.NoError(t, err)
	return batch, want
}

// pendingText is ["a", "bb", null, "ccc"] in memory that producer fills, with an event
// behind that. How many nulls it has is not known.
func pendingText(t *testing.T, gpu device.Device, producer device.Stream) *cdevice.Array {
	t.Helper()
	offsets := filled(t, gpu, producer, arrow.Int32Traits.CastToBytes([]int32{0, 1, 3, 3, 6}))
	text := filled(t, gpu, producer, []byte("abbccc"))
	valid := filled(t, gpu, producer, []byte{0b1011})
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, producer.Record(e))
	a, err := cdevice.NewArray(gpu, arrow.BinaryTypes.String,
		cdevice.ArrayData{Length: 4, NullCount: -1, Buffers: []device.Ptr{valid.Ptr(), offsets.Ptr(), text.Ptr()}},
		cdevice.Lifetime{Ready: e, Release: func() {
			for _, m := range []device.Memory{offsets, text, valid} {
				assert.NoError(t, m.FreeAfter(nil))
			}
		}})
	require.NoError(t, err)
	return a
}

// notReady is a column of text that another library has not filled yet, imported. The event
// ends with the producer's struct.
func notReady(t *testing.T, m *cudatest.Machine, dev *cudaalloc.Device) (a *cdevice.Array, open func()) {
	t.Helper()
	producer := m.Stranger(t, dev)
	text := pendingText(t, dev, newStream(t, dev))
	require.NoError(t, text.Synchronize(background))
	open = producer.Hold(t)
	word, destroy := producer.Event(t)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(text, out, schema))
	text.Release()
	cell := &word
	out.SyncEvent = addressOf(cell)
	a, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(dev), cdevice.WithReleaser(func(release func()) {
		assert.NoError(t, destroy())
		*cell = 0
		release()
	}))
	require.NoError(t, err)
	assert.False(t, ready(t, a))
	return a, open
}

// sent exports a batch and imports it again. It takes the batch.
func sent(t *testing.T, b *cdevice.RecordBatch, gpu device.Device) *cdevice.RecordBatch {
	t.Helper()
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
	b.Release()
	imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
	require.NoError(t, err)
	return imported
}

// copied is a copy of the column on the device, which is done.
func copiedTo(t *testing.T, column arrow.Array, dev device.Device) *cdevice.Array {
	t.Helper()
	a, err := copyArray(background, column, dev)
	require.NoError(t, err)
	require.NoError(t, a.Synchronize(background))
	return a
}

const mib = 1 << 20

// calls returns the driver calls of f, without those that prepare the thread: they make contexts
// current and set the capture mode, and cost no more than reading a variable of the thread.
func calls(m *cudatest.Machine, f func()) (calls map[string]int, r cudasim.Report) {
	m.Sim.ResetCounters()
	f()
	r = m.Sim.Report()
	delete(r.Calls, "cuCtxGetCurrent")
	delete(r.Calls, "cuCtxSetCurrent")
	delete(r.Calls, "cuThreadExchangeStreamCaptureMode")
	return r.Calls, r
}

// mappedFile maps a file of so many pages, each full of one number.
func mappedFile(t *testing.T, count int) (b []byte, unmap func() error) {
	t.Helper()
	page := os.Getpagesize()
	content := make([]byte, count*page)
	for i := range content {
		content[i] = byte(i / page)
	}
	name := filepath.Join(t.TempDir(), "columns")
	require.NoError(t, os.WriteFile(name, content, 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	b, unmap, err = pages.MapFile(f, len(content))
	require.NoError(t, err)
	return b, unmap
}

// asCuDFWants fails unless libcudf reads the struct and all below it correctly.
func asCuDFWants(t *testing.T, gpu *cudaalloc.Device, a *abi.ArrowArray) {
	t.Helper()
	assert.Zero(t, a.Offset)
	assert.GreaterOrEqual(t, a.NullCount, int64(0), "an unknown null count is taken for none")
	if a.NBuffers > 0 {
		if bitmap := *abi.At[uintptr](a.Buffers); bitmap != 0 {
			assert.Zero(t, bitmap%64)
			at, err := gpu.Lookup(device.Ptr(bitmap))
			require.NoError(t, err)
			padded := (a.Length + 511) / 512 * 64
			assert.True(t, at.Contains(device.Ptr(bitmap), padded), "read in words, to the end of 64 bytes")
			used := (a.Length + 7) / 8
			assert.Equal(t, make([]byte, padded-used), readFrom(t, gpu, bitmap, padded)[used:], "padded with zeros")
		}
	}
	for _, child := range abi.Slice[uintptr](a.Children, int(a.NChildren)) {
		asCuDFWants(t, gpu, abi.At[abi.ArrowArray](child))
	}
	if a.Dictionary != 0 {
		asCuDFWants(t, gpu, abi.At[abi.ArrowArray](a.Dictionary))
	}
}

// wantText has the values of pendingText.
func wantText(t *testing.T) arrow.Array {
	return fromJSON(t, arrow.BinaryTypes.String, `["a","bb",null,"ccc"]`)
}

// pendingArray is an imported array whose release is noted.
func pendingArray(t *testing.T, gpu device.Device, released *atomic.Bool) *cdevice.Array {
	rec := columnsOf(memory.DefaultAllocator, 1, 100, false)
	defer rec.Release()
	there, err := copyArray(background, rec.Column(0), gpu)
	require.NoError(t, err)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(there, out, schema))
	there.Release()
	a, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu), cdevice.WithReleaser(func(release func()) {
		release()
		released.Store(true)
	}))
	require.NoError(t, err)
	return a
}
