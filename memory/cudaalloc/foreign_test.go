package cudaalloc_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// releaseOnForeignThread exports arr, and has a C thread that Go never saw release
// it. It takes arr.
func releaseOnForeignThread(t *testing.T, arr arrow.Array) {
	wrapped, err := cdevice.WrapArray(arr, device.CPUDevice())
	require.NoError(t, err)
	arr.Release()
	var out abi.ArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(wrapped, abi.As[cdevice.CArrowDeviceArray](&out), nil))
	wrapped.Release()
	require.NoError(t, cpeer.ReleaseOnThread(&out.Array))
}

// A stream or event of another implementation is used by its handle.
type (
	theirStream struct{ device.Stream }
	theirEvent  struct{ device.Event }
)

func TestGPUOthersStreamsAndEvents(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{Delay: 100 * time.Microsecond})
	gpu := m.GPUs[0]
	own, err := gpu.NewStream()
	require.NoError(t, err)
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	const n = 100
	mem, err := gpu.Pinned().Allocate(background, n, nil)
	require.NoError(t, err)
	for value, s := range []device.Stream{theirStream{own}, (*cudaalloc.Stream)(nil), nil} {
		require.NoError(t, gpu.Memset(mem.Ptr(), byte(value+1), n, s))
		if s == nil || s == (*cudaalloc.Stream)(nil) {
			s = gpu.Legacy()
		}
		own, ok := s.(*cudaalloc.Stream)
		if !ok {
			own = s.(theirStream).Stream.(*cudaalloc.Stream)
		}
		require.NoError(t, own.Record(theirEvent{e}))
		require.NoError(t, gpu.PerThread().WaitEvent(theirEvent{e}))
		require.NoError(t, e.Synchronize(background))
		assert.Equal(t, n, bytes.Count(cudatest.At(mem.Ptr(), n), []byte{byte(value + 1)}))
	}
	require.NoError(t, mem.Free(theirStream{own}))
	require.NoError(t, own.Close())
	require.NoError(t, e.Close())
	assert.Error(t, gpu.Memset(mem.Ptr(), 0, n, own), "a closed stream is nobody's")
	_, err = gpu.Allocate(background, 10, own)
	assert.Error(t, err)
	assert.Error(t, gpu.Copy(nil, own))
	assert.Error(t, gpu.Prefetch(mem.Ptr(), n, own))
	assert.Error(t, gpu.Legacy().Record(e), "so is a closed event")
	assert.Error(t, gpu.Legacy().WaitEvent(e))
	_, err = e.Query()
	assert.Error(t, err)
}

func TestGPUForeignThread(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	calls := 0
	mem := calling{memory.NewGoAllocator(), func() {
		calls++
		s, err := gpu.NewStream()
		assert.NoError(t, err)
		own, err := gpu.Allocate(background, 1000, s)
		assert.NoError(t, err)
		assert.NoError(t, gpu.Memset(own.Ptr(), 1, 1000, s))
		assert.NoError(t, own.Free(s))
		assert.NoError(t, s.Synchronize(background))
		assert.NoError(t, s.Close())
	}}
	b := array.NewInt64Builder(mem)
	b.AppendValues([]int64{1, 2, 3}, nil)
	arr := b.NewArray()
	b.Release()
	releaseOnForeignThread(t, arr)
	assert.Positive(t, calls)
}

// calling is an allocator that uses a GPU when something is freed, which a foreign
// thread does by releasing an exported array.
type calling struct {
	memory.Allocator
	free func()
}

func (c calling) Free(b []byte) {
	c.free()
	c.Allocator.Free(b)
}
