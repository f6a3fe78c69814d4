package cudatest

import (
	"bytes"
	"context"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// GivenBackBehindWork tests memory of an allocator that a copy reads and that AfterWork frees after
// the copy: the next user of it may write to it at once. mem caches freed memory.
func GivenBackBehindWork(t *testing.T, m *Machine, mem memory.Allocator) {
	gpu := m.GPUs[0]
	const size = 10_000
	s, err := gpu.NewStream()
	require.NoError(t, err)
	own, err := gpu.Allocate(context.Background(), size, s)
	require.NoError(t, err)
	written := func(value byte) (b []byte, p device.Ptr) {
		b = mem.Allocate(size)
		p = device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
		m.HostWrite(p, size)
		for i := range b {
			b[i] = value
		}
		return b, p
	}
	first, at := written(1)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: own.Ptr(), Src: at, Size: size}}, s))
	gpu.AfterWork(func() { mem.Free(first) })
	require.NoError(t, gpu.Flush(context.Background()))
	next, again := written(2)
	assert.Equal(t, at, again, "the cache has it again")
	require.NoError(t, gpu.Copy([]device.Range{{Dst: again, Src: own.Ptr(), Size: size}}, s))
	require.NoError(t, s.Synchronize(context.Background()))
	m.HostRead(again, size)
	assert.Equal(t, size, bytes.Count(next, []byte{1}))
	mem.Free(next)
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// Pinned returns an allocator of page-locked memory.
func Pinned(t testing.TB, gpu *cudaalloc.Device, opts ...hostpinned.AllocatorOption) *hostpinned.Allocator {
	t.Helper()
	mem, err := hostpinned.NewAllocator(gpu, opts...)
	require.NoError(t, err)
	return mem
}
