package cudatest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Stranger is a stream that other code of the process made, by calls of the driver that
// package cudaalloc does not see: another library's.
type Stranger struct {
	sim    *cudasim.Sim // nil for a driver that tests do not control
	gpu    device.Device
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
	return &Stranger{m.Sim, gpu, ctx, handle}
}

// context is the primary context of the GPU, which the GPU retains.
func (m *Machine) context(t testing.TB, gpu device.Device) *cuda.Context {
	t.Helper()
	ctx := m.retain(t, gpu.ID().Ordinal)
	require.NoError(t, ctx.Release())
	return ctx
}

// Hold holds the stream back until open is called, at the latest when the test ends. On a simulated machine that is
// independent of all other holds; for others, see [Machine.Hold].
func (s *Stranger) Hold(t testing.TB) (open func()) {
	t.Helper()
	return hold(t, s.gpu, s.hold)
}

func (s *Stranger) hold() (open func(), err error) {
	if s.sim == nil {
		return s.ctx.Hold(s.Handle)
	}
	event, err := s.ctx.NewEvent()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.sim.HoldEvent(event), s.ctx.Record(event, s.Handle)); err != nil {
		return nil, errors.Join(err, s.ctx.FreeEvent(event))
	}
	return func() { _, _ = s.sim.FireEvent(event), s.ctx.FreeEvent(event) }, nil
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
