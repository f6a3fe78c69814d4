//go:build gorgonia

package gorgonia_test

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/cu"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc/gorgonia"
)

var (
	numbers = []int64{10, 20, 30, 40}
	schema  = arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
)

// want has the values that the tests copy to the GPU.
func want(t *testing.T) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(numbers, nil)
	b.Field(1).(*array.StringBuilder).AppendValues([]string{"a", "bb", "", "ccc"}, []bool{true, true, false, true})
	rec := b.NewRecordBatch()
	t.Cleanup(rec.Release)
	return rec
}

// source is where memory comes from and goes to.
type source struct {
	alloc func(int64) (cu.DevicePtr, error)
	free  func(cu.DevicePtr) error
}

// freed counts how often memory is freed.
type freed struct {
	mu    sync.Mutex
	times map[cu.DevicePtr]int
}

func (f *freed) wrap(free func(cu.DevicePtr) error) func(cu.DevicePtr) error {
	f.times = map[cu.DevicePtr]int{}
	return func(p cu.DevicePtr) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.times[p]++
		return free(p)
	}
}

func (f *freed) all() (total int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.times {
		total += n
	}
	return total
}

// filled is the buffers of want on the device, filled by cu.
func filled(t *testing.T, dev *cudaalloc.Device, from source, rec arrow.RecordBatch) (at []cu.DevicePtr) {
	text := rec.Column(1).Data().Buffers()
	for _, b := range [][]byte{rec.Column(0).Data().Buffers()[1].Bytes(), text[0].Bytes(), text[1].Bytes(), text[2].Bytes()} {
		do(t, dev, func() error {
			p, err := from.alloc(int64(len(b)))
			if err != nil {
				return err
			}
			at = append(at, p)
			return cu.MemcpyHtoD(p, unsafe.Pointer(&b[0]), int64(len(b)))
		})
	}
	return at
}

func columns(at []cu.DevicePtr) []cdevice.ArrayData {
	return []cdevice.ArrayData{
		gorgonia.Column(at[0], 4),
		{Length: 4, NullCount: -1, Buffers: []device.Ptr{gorgonia.Ptr(at[1]), gorgonia.Ptr(at[2]), gorgonia.Ptr(at[3])}},
	}
}

// Memory of gorgonia, or of ours that gorgonia filled, is exported as a record batch and imported
// unchanged; it is freed once, after its last use.
func TestMemoryBecomesABatch(t *testing.T) {
	_, dev := gpu(t)
	rec := want(t)
	managed := func(size int64) (cu.DevicePtr, error) { return cu.MemAllocManaged(size, cu.AttachGlobal) }
	for name, c := range map[string]struct {
		dev  *cudaalloc.Device
		from source
	}{
		"cu.MemAlloc":        {dev, source{cu.MemAlloc, cu.MemFree}},
		"cu.MemAllocManaged": {dev.Managed(), source{managed, cu.MemFree}},
		"Allocator":          {dev, allocator(t, dev)},
		"managed Allocator":  {dev.Managed(), allocator(t, dev.Managed())},
	} {
		t.Run(name, func(t *testing.T) {
			var count freed
			at := filled(t, c.dev, c.from, rec)
			owner, err := gorgonia.Owner(c.dev, cu.NoStream, count.wrap(c.from.free), at...)
			require.NoError(t, err)
			batch, err := cdevice.NewRecordBatch(c.dev, schema, 4, columns(at), owner)
			require.NoError(t, err)

			var out cdevice.CArrowDeviceArray
			var outSchema cdata.CArrowSchema
			require.NoError(t, cdevice.ExportRecordBatch(batch, &out, &outSchema))
			batch.Release()
			back, err := cdevice.ImportRecordBatch(&out, &outSchema)
			require.NoError(t, err)
			assert.Equal(t, c.dev.ID(), back.DeviceID())
			got, err := back.CopyToHost(background, nil)
			require.NoError(t, err)
			assert.True(t, array.RecordEqual(rec, got), "%s", got)
			got.Release()

			ended(t, dev)
			assert.Zero(t, count.all())
			back.Release()
			ended(t, dev)
			for _, p := range at {
				assert.Equal(t, 1, count.times[p])
			}
			assert.Equal(t, len(at), count.all())
		})
	}
}

func allocator(t *testing.T, dev *cudaalloc.Device) source {
	a, err := gorgonia.NewAllocator(dev, cu.NoStream)
	require.NoError(t, err)
	return source{a.MemAlloc, a.MemFree}
}

// The batch is ready when the stream that fills its memory got there, and the memory is
// not freed under work that cu enqueued on it.
func TestBatchWaitsForTheStream(t *testing.T) {
	m, dev := gpu(t)
	s := cuStream(t, dev)
	borrowed, err := gorgonia.Stream(dev, s)
	require.NoError(t, err)
	p := cuMemory(t, dev, 32)

	open := m.Hold(t, borrowed)
	do(t, dev, func() error { return cu.MemcpyHtoDAsync(p, unsafe.Pointer(&numbers[0]), 32, s) })
	var count freed
	owner, err := gorgonia.Owner(dev, s, count.wrap(cu.MemFree), p)
	require.NoError(t, err)
	arr, err := cdevice.NewArray(dev, arrow.PrimitiveTypes.Int64, gorgonia.Column(p, 4), owner)
	require.NoError(t, err)
	ready, err := arr.Ready()
	require.NoError(t, err)
	assert.False(t, ready)
	open()
	got, err := arr.CopyToHost(background, nil)
	require.NoError(t, err)
	assert.Equal(t, "[10 20 30 40]", got.String())
	got.Release()

	open = m.Hold(t, borrowed)
	do(t, dev, func() error { return cu.MemsetD8Async(p, 0, 32, s) })
	require.NoError(t, arr.UsedOn(borrowed))
	arr.Release()
	assert.Zero(t, count.all())
	open()
	ended(t, dev)
	assert.Equal(t, 1, count.all())
}

// Memory that Owner refuses is freed all the same, once.
func TestOwnerFreesAlsoAfterAnError(t *testing.T) {
	m, dev := gpu(t)
	for name, c := range map[string]struct {
		dev  *cudaalloc.Device
		s    cu.Stream
		want string
	}{
		"another kind of memory": {dev.Managed(), cu.NoStream, "is of cuda:0, want cuda_managed:0"},
		"no stream":              {dev, garbage(), "cuEventRecord"},
	} {
		t.Run(name, func(t *testing.T) {
			if m.Sim == nil && c.s != cu.NoStream {
				t.Skip("a handle that is none may crash a real driver")
			}
			p := cuMemory(t, dev, 32)
			var count freed
			_, err := gorgonia.Owner(c.dev, c.s, count.wrap(cu.MemFree), p)
			assert.ErrorContains(t, err, c.want)
			ended(t, dev)
			assert.Equal(t, 1, count.all())
		})
	}
	// The same where it is cdevice that refuses.
	p := cuMemory(t, dev, 32)
	var count freed
	owner, err := gorgonia.Owner(dev, cu.NoStream, count.wrap(cu.MemFree), p)
	require.NoError(t, err)
	_, err = cdevice.NewArray(dev, arrow.PrimitiveTypes.Int64, gorgonia.Column(p, -1), owner)
	assert.Error(t, err)
	ended(t, dev)
	assert.Equal(t, 1, count.all())
}

// garbage is a stream that never was one.
func garbage() cu.Stream { return gorgonia.CUStream(notAStream{}) }

type notAStream struct{ device.Stream }

func (notAStream) Handle() uintptr { return 0x1230 }

func TestAllocator(t *testing.T) {
	_, dev := gpu(t)
	s := cuStream(t, dev)
	a, err := gorgonia.NewAllocator(dev, s)
	require.NoError(t, err)
	before := dev.ReadStats().Device.Live
	p, err := a.MemAlloc(1000)
	require.NoError(t, err)
	assert.EqualValues(t, 1000, dev.ReadStats().Device.Live-before)
	do(t, dev, func() error { return cu.MemsetD8Async(p, 5, 1000, s) })
	do(t, dev, s.Synchronize)
	assert.Equal(t, byte(5), read(t, dev, p, 1000)[999])
	require.NoError(t, a.MemFree(p))
	assert.ErrorContains(t, a.MemFree(p), "not memory of this allocator")

	p, err = a.MemAlloc(0)
	require.NoError(t, err)
	assert.Zero(t, p)
	require.NoError(t, a.MemFree(p))
	_, err = a.MemAlloc(-1)
	assert.ErrorContains(t, err, "negative size")
	_, err = a.MemAlloc(1 << 50)
	assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
	settled(t, dev, before)
}

// A program that has its work done by a cu.Ctx, on its goroutine, keeps to it.
func TestCtxOnThePrimaryContext(t *testing.T) {
	_, dev := gpu(t)
	ctx := cu.CtxFromCUContext(0, gorgonia.CUContext(dev), cu.SchedAuto)
	contexts = append(contexts, ctx)
	go func() { _ = ctx.Run(make(chan error)) }()
	p, err := ctx.MemAlloc(32)
	require.NoError(t, err)
	ctx.MemcpyHtoD(p, unsafe.Pointer(&numbers[0]), 32)
	require.NoError(t, ctx.Error())
	owner, err := gorgonia.Owner(dev, cu.NoStream, cu.MemFree, p)
	require.NoError(t, err)
	arr, err := cdevice.NewArray(dev, arrow.PrimitiveTypes.Int64, gorgonia.Column(p, 4), owner)
	require.NoError(t, err)
	defer arr.Release()
	got, err := arr.CopyToHost(background, nil)
	require.NoError(t, err)
	defer got.Release()
	assert.Equal(t, "[10 20 30 40]", got.String())
}

// contexts are kept from their finalizers, which would destroy the primary context.
var contexts []*cu.Ctx

// ended returns when no free waits for the work of the GPU any more. Ending one item may add
// others: a batch that was used on a stream adds its memory.
func ended(t *testing.T, dev *cudaalloc.Device) {
	t.Helper()
	for first := true; first || dev.ReadStats().Waiting > 0; first = false {
		require.NoError(t, dev.Flush(background))
	}
}

// settled fails unless no more of the device's memory is live than before.
func settled(t *testing.T, dev *cudaalloc.Device, before int64) {
	t.Helper()
	ended(t, dev)
	assert.Equal(t, before, dev.ReadStats().Device.Live)
}
