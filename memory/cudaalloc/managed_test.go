package cudaalloc_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestGPUManagedBuilders(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := cudaalloc.NewManagedAllocator(gpu)
	require.NoError(t, err)
	assert.Same(t, gpu.Managed(), mem.Device())
	for _, c := range cases.All() {
		want, err := c.Array(memory.DefaultAllocator, cases.Nulls)
		require.NoError(t, err)
		got, err := c.Array(mem, cases.Nulls)
		require.NoError(t, err)
		assert.True(t, array.Equal(want, got), c.Name)
		got.Release()
		want.Release()
	}
	b := array.NewInt64Builder(mem)
	b.AppendValues([]int64{1, 2, 3}, nil)
	arr := b.NewInt64Array()
	b.Release()
	values := arrow.Int64Traits.CastToBytes(arr.Int64Values())
	require.NoError(t, gpu.Prefetch(cudatest.Pointer(values), int64(len(values)), nil))
	require.NoError(t, gpu.PrefetchToHost(cudatest.Pointer(values), int64(len(values)), nil))
	require.NoError(t, gpu.Prefetch(0, 0, nil))
	require.NoError(t, gpu.Legacy().Synchronize(background))
	assert.Equal(t, []int64{1, 2, 3}, arr.Int64Values())
	arr.Release()
	use := mem.ReadStats()
	assert.Equal(t, cudaalloc.Usage{Peak: use.Peak, Held: use.Held, Cached: use.Held, Total: use.Total}, use)
	assert.Positive(t, use.Peak)
	assert.Positive(t, use.Total)
	require.NoError(t, gpu.Flush(background))
	assert.Equal(t, use.Held, gpu.ReadStats().Managed.Live, "to the GPU, memory that the allocator keeps is live")
	require.NoError(t, gpu.Trim(background))
	assert.Zero(t, mem.ReadStats().Held)

	_, err = cudaalloc.NewManagedAllocator(gpu, cudaalloc.WithLimit(-1))
	assert.EqualError(t, err, "cuda: NewManagedAllocator: WithLimit(-1), want 0 or more: invalid")
	small, err := cudaalloc.NewManagedAllocator(gpu, cudaalloc.WithLimit(1000))
	require.NoError(t, err)
	defer func() {
		var failed *cudaalloc.AllocationError
		require.ErrorAs(t, recover().(error), &failed)
		assert.Equal(t, cudaalloc.AllocationError{Op: "allocate", Device: gpu.Managed().ID(), Size: 2000, Err: failed.Err}, *failed)
		assert.ErrorIs(t, failed, cudaalloc.ErrLimit)
	}()
	small.Allocate(2000)
}

// Memory of an allocator that a copy reads is freed after the copy by AfterWork:
// its next user may write to it at once.
func TestGPUManagedMemoryIsGivenBackBehindWork(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		mem, err := cudaalloc.NewManagedAllocator(m.GPUs[0])
		if err != nil {
			require.ErrorIs(t, err, device.ErrNotSupported)
			t.Skip("no managed memory")
		}
		cudatest.GivenBackBehindWork(t, m, mem)
	})
}
