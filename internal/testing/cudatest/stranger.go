package cudatest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Stranger is a stream that other code of the process made, by calls of the driver that
// package cudaalloc does not see: another library's.
type Stranger struct {
	ctx    *cuda.Context
	Handle uintptr // CUstream
}

// Stranger makes a stream, which is destroyed when the test ends.
func (m *Machine) Stranger(t testing.TB, gpu *cudaalloc.Device) *Stranger {
	t.Helper()
	ctx := m.context(t, gpu)
	handle, err := ctx.NewStream(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.FreeStream(handle)) })
	return &Stranger{ctx, handle}
}

// context is the primary context of the GPU, which the GPU retains.
func (m *Machine) context(t testing.TB, gpu device.Device) *cuda.Context {
	t.Helper()
	ctx := m.retain(t, gpu.ID().Ordinal)
	require.NoError(t, ctx.Release())
	return ctx
}

// Hold holds the stream back until open is called, at the latest when the test ends.
func (s *Stranger) Hold(t testing.TB) (open func()) {
	t.Helper()
	let, err := s.ctx.Hold(s.Handle)
	require.NoError(t, err)
	open = sync.OnceFunc(let)
	t.Cleanup(open)
	return open
}

// Memset enqueues a fill.
func (s *Stranger) Memset(p device.Ptr, value byte, size int64) error {
	return s.ctx.Memset(p, value, size, s.Handle)
}

// Copy enqueues copies.
func (s *Stranger) Copy(ranges []device.Range) error { return s.ctx.Copy(ranges, s.Handle) }

// Synchronize waits for the stream.
func (s *Stranger) Synchronize() error { return s.ctx.SynchronizeStream(s.Handle) }

// Event makes an event behind the work so far. destroy is for its owner to call.
func (s *Stranger) Event(t testing.TB) (handle uintptr, destroy func() error) {
	t.Helper()
	handle, err := s.ctx.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.ctx.Record(handle, s.Handle))
	return handle, func() error { return s.ctx.FreeEvent(handle) }
}
