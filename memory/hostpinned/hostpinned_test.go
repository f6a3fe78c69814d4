package hostpinned_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

var _ memory.Allocator = (*hostpinned.Allocator)(nil)

// everyPinned fails unless all buffers below data are page-locked.
func everyPinned(t *testing.T, gpu *cudaalloc.Device, data arrow.ArrayData) {
	t.Helper()
	for i, b := range data.Buffers() {
		if b == nil || b.Len() == 0 {
			continue
		}
		at, err := gpu.Lookup(pointer(b.Bytes()))
		require.NoError(t, err)
		assert.Equal(t, device.CUDAHost, at.ID.Type, "buffer %d of %s", i, data.DataType())
	}
	for _, child := range data.Children() {
		everyPinned(t, gpu, child)
	}
	if dictionary, ok := data.Dictionary().(*array.Data); ok && dictionary != nil {
		everyPinned(t, gpu, dictionary)
	}
}

func TestGPUBuildersOfEveryType(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	mem := cudatest.Pinned(t, m.GPUs[0])
	assert.Same(t, m.GPUs[0].Pinned(), mem.Device())
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			want, err := c.Array(memory.DefaultAllocator, v)
			require.NoError(t, err)
			got, err := c.Array(mem, v)
			require.NoError(t, err)
			assert.True(t, array.Equal(want, got), "%s, %s", c.Name, v)
			everyPinned(t, m.GPUs[0], got.Data())
			got.Release()
			want.Release()
		}
	}
	live := mem.ReadStats().Pinned.Live
	assert.Zero(t, live)
	mem.Trim()
}

func records(t *testing.T) arrow.RecordBatch {
	var fields []arrow.Field
	var columns []arrow.Array
	for _, name := range []string{"int64", "utf8", "list", "struct"} {
		for _, c := range cases.All() {
			if c.Name == name {
				col, err := c.Array(memory.DefaultAllocator, cases.Nulls)
				require.NoError(t, err)
				defer col.Release()
				fields = append(fields, arrow.Field{Name: name, Type: c.Type, Nullable: true})
				columns = append(columns, array.NewSlice(col, 0, 4))
			}
		}
	}
	require.NotEmpty(t, columns)
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 4)
	for _, col := range columns {
		col.Release()
	}
	return rec
}

func TestGPUIPCReader(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	mem := cudatest.Pinned(t, m.GPUs[0])
	want := records(t)
	defer want.Release()
	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(want.Schema()))
	require.NoError(t, w.Write(want))
	require.NoError(t, w.Close())
	r, err := ipc.NewReader(&stream, ipc.WithAllocator(mem))
	require.NoError(t, err)
	require.True(t, r.Next())
	got := r.RecordBatch()
	assert.True(t, array.RecordEqual(want, got))
	for _, col := range got.Columns() {
		everyPinned(t, m.GPUs[0], col.Data())
	}
	r.Release()
	live := mem.ReadStats().Pinned.Live
	assert.Zero(t, live)
	mem.Trim()
}

// Page-locking costs milliseconds: it is done a few times, however much is allocated.
func TestFewPageLocks(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	mem := cudatest.Pinned(t, m.GPUs[0])
	r := rand.New(rand.NewPCG(1, 1))
	var live [][]byte
	m.Sim.ResetCounters()
	for range 10_000 {
		live = append(live, mem.Allocate(1+r.IntN(1<<r.IntN(21))))
		if len(live) == 16 {
			for _, b := range live {
				mem.Free(b)
			}
			live = live[:0]
		}
	}
	assert.LessOrEqual(t, m.Sim.Calls("cuMemHostAlloc"), 10)
	assert.Zero(t, m.Sim.Calls("cuMemFreeHost"))
	require.NoError(t, m.GPUs[0].Trim(context.Background()))
	assert.Equal(t, m.Sim.Calls("cuMemHostAlloc"), m.Sim.Calls("cuMemFreeHost"))
}

func TestLimitAndTheDriversLimit(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{HostMemory: 16 << 20})
	gpu := m.GPUs[0]
	limited := cudatest.Pinned(t, gpu, hostpinned.WithLimit(1<<20))
	err := panicOf(func() { limited.Allocate(2 << 20) })
	assert.ErrorIs(t, err, hostpinned.ErrLimit)

	mem := cudatest.Pinned(t, gpu)
	err = panicOf(func() { mem.Allocate(32 << 20) })
	assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
	assert.ErrorContains(t, err, "allocate 33554432 bytes of cuda_host:0 memory: cuda: cuMemHostAlloc(33554432) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY")
	var failed *cudaalloc.AllocationError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, cudaalloc.AllocationError{Op: "allocate", Device: gpu.Pinned().ID(), Size: 32 << 20, Err: failed.Err}, *failed)
	var call *cudaalloc.Error
	require.ErrorAs(t, err, &call)
	assert.Equal(t, "cuMemHostAlloc", call.Call)
	assert.Equal(t, cudaalloc.OutOfMemory, call.Code)
	assert.ErrorIs(t, err, syscall.ENOMEM)

	// Memory that one allocator only caches is available to another one.
	mem.Free(mem.Allocate(12 << 20))
	other := cudatest.Pinned(t, gpu)
	other.Free(other.Allocate(12 << 20))
	other.Trim()
}

func panicOf(f func()) (err error) {
	defer func() {
		if e, ok := recover().(error); ok {
			err = e
		}
	}()
	f()
	return nil
}

// mapFile maps a file of n bytes read-only, as ipc.MappedFileReader does.
func mapFile(t *testing.T, content []byte) []byte {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	mapped, err := syscall.Mmap(int(f.Fd()), 0, len(content), syscall.PROT_READ, syscall.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(mapped)) })
	return mapped
}

// An IPC file that is mapped and registered is copied from without staging.
func TestMappedIPCFile(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{PageableAsync: true})
	gpu := m.GPUs[0]
	want := records(t)
	defer want.Release()
	var file bytes.Buffer
	w, err := ipc.NewFileWriter(&file, ipc.WithSchema(want.Schema()))
	require.NoError(t, err)
	require.NoError(t, w.Write(want))
	require.NoError(t, w.Close())
	mapped := mapFile(t, file.Bytes())

	registered, err := hostpinned.Register(gpu, mapped, hostpinned.WithReadOnly())
	require.NoError(t, err)
	assert.EqualValues(t, len(mapped), registered.Size())
	at, err := gpu.Lookup(registered.Ptr() + 10)
	require.NoError(t, err)
	assert.Equal(t, device.CUDAHost, at.ID.Type)

	r, err := ipc.NewFileReader(bytes.NewReader(mapped))
	require.NoError(t, err)
	got, err := r.RecordBatchAt(0)
	require.NoError(t, err)
	assert.True(t, array.RecordEqual(want, got))
	got.Release()
	require.NoError(t, r.Close())

	own, err := gpu.Allocate(context.Background(), registered.Size(), nil)
	require.NoError(t, err)
	m.Sim.ResetCounters()
	require.NoError(t, gpu.Copy([]device.Range{{Dst: own.Ptr(), Src: registered.Ptr(), Size: registered.Size()}}, nil))
	require.NoError(t, gpu.Legacy().Synchronize(context.Background()))
	report := m.Sim.Report()
	assert.EqualValues(t, len(mapped), report.Bytes.HtoD)
	assert.Zero(t, report.StagedBytes)
	require.NoError(t, own.Free(nil))
	require.NoError(t, registered.Unregister(context.Background()))
	assert.EqualError(t, registered.Unregister(context.Background()), "hostpinned: unregistered twice")
	assert.Zero(t, m.Sim.Report().Live.RegisteredBytes)
}

func TestGPURegister(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	b := make([]byte, 64<<10) // of the Go heap
	copy(b, "page-locked")
	r, err := hostpinned.Register(gpu, b)
	require.NoError(t, err)
	at, err := gpu.Lookup(r.Ptr())
	require.NoError(t, err)
	assert.Equal(t, device.CUDAHost, at.ID.Type)

	_, err = hostpinned.Register(gpu, b)
	assert.ErrorIs(t, err, cudaalloc.HostMemoryAlreadyRegistered)
	_, err = hostpinned.Register(gpu, nil)
	assert.ErrorContains(t, err, "b is empty")

	own, err := gpu.Allocate(context.Background(), int64(len(b)), nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: own.Ptr(), Src: r.Ptr(), Size: r.Size()}}, nil))
	require.NoError(t, r.Unregister(context.Background()), "waits for the copy")
	copy(b, "overwritten")
	back := cudatest.Pinned(t, gpu)
	got := back.Allocate(len(b))
	require.NoError(t, gpu.Copy([]device.Range{{Dst: pointer(got), Src: own.Ptr(), Size: r.Size()}}, nil))
	require.NoError(t, gpu.Legacy().Synchronize(context.Background()))
	assert.Equal(t, "page-locked", string(got[:11]))
	back.Free(got)
	back.Trim()
	require.NoError(t, own.Free(nil))
}

// Memory that is freed after the GPU's work may be written by its next user.
func TestGPUMemoryIsGivenBackBehindWork(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		cudatest.GivenBackBehindWork(t, m, cudatest.Pinned(t, m.GPUs[0]))
	})
}

// Memory that is not registered any more may be written to: no copy reads it.
func TestGPUUnregisterComesBehindWork(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		const size = 64 << 10
		b := bytes.Repeat([]byte{1}, size)
		pins := new(runtime.Pinner)
		pins.Pin(&b[0])
		defer pins.Unpin()
		r, err := hostpinned.Register(gpu, b)
		require.NoError(t, err)
		m.HostWrite(r.Ptr(), size)
		own, err := gpu.Allocate(context.Background(), size, nil)
		require.NoError(t, err)
		require.NoError(t, gpu.Copy([]device.Range{{Dst: own.Ptr(), Src: r.Ptr(), Size: size}}, nil))
		require.NoError(t, r.Unregister(context.Background()))
		copy(b, bytes.Repeat([]byte{2}, size))
		require.NoError(t, gpu.Copy([]device.Range{{Dst: pointer(b), Src: own.Ptr(), Size: size}}, nil))
		require.NoError(t, gpu.Legacy().Synchronize(context.Background()))
		assert.Equal(t, size, bytes.Count(b, []byte{1}))
		require.NoError(t, own.Free(nil))
	})
}

// A driver that fails once loses nothing: the registration can be ended again.
func TestUnregisterFails(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	r, err := hostpinned.Register(m.GPUs[0], make([]byte, 8<<10))
	require.NoError(t, err)
	m.Sim.Fail("cuMemHostUnregister", 1, 999)
	assert.ErrorContains(t, r.Unregister(context.Background()), "cuMemHostUnregister")
	m.Sim.Fail("cuCtxSynchronize", 1, 999)
	require.NoError(t, r.Unregister(context.Background()), "it is synchronised again")
	m.Sim.Fail("cuMemHostRegister", 1, 999)
	_, err = hostpinned.Register(m.GPUs[0], make([]byte, 100))
	assert.ErrorContains(t, err, "cuMemHostRegister")
	assert.Zero(t, m.Sim.Report().Live.RegisteredBytes)
}
