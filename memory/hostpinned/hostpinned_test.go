package hostpinned_test

import (
	"bytes"
	"context"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

var (
	_ memory.Allocator = (*hostpinned.Allocator)(nil)

	background = context.Background()
)

// allPinned fails unless all buffers below data are page-locked.
func allPinned(t *testing.T, gpu *cudaalloc.Device, data arrow.ArrayData, what string) {
	t.Helper()
	_, no := locked(t, gpu, data)
	assert.Zero(t, no, what)
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
			allPinned(t, m.GPUs[0], got.Data(), c.Name)
			got.Release()
			want.Release()
		}
	}
	assert.Zero(t, mem.ReadStats().Pinned.Live)
	require.NoError(t, m.GPUs[0].Trim(background))
	assert.Zero(t, mem.ReadStats().Pinned.Held)
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
	t.Cleanup(rec.Release)
	return rec
}

func TestGPUIPCReader(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	mem := cudatest.Pinned(t, m.GPUs[0])
	want := records(t)
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
		allPinned(t, m.GPUs[0], col.Data(), col.DataType().String())
	}
	r.Release()
	assert.Zero(t, mem.ReadStats().Pinned.Live)
}

func TestLimitAndTheDriversLimit(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{HostMemory: 16 << 20})
	gpu := m.GPUs[0]
	limited := cudatest.Pinned(t, gpu, hostpinned.WithLimit(1<<20))
	assert.ErrorIs(t, panicOf(func() { limited.Allocate(2 << 20) }), hostpinned.ErrLimit)

	mem := cudatest.Pinned(t, gpu)
	err := panicOf(func() { mem.Allocate(32 << 20) })
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

// Memory that is freed after the GPU's work may be written by its next user.
func TestGPUMemoryIsGivenBackBehindWork(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		cudatest.GivenBackBehindWork(t, m, cudatest.Pinned(t, m.GPUs[0]))
	})
}
