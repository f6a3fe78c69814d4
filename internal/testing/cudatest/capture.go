package cudatest

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Modes of [Machine.Capture].
const (
	Global      = cuda.CaptureGlobal
	ThreadLocal = cuda.CaptureThreadLocal
	Relaxed     = cuda.CaptureRelaxed
)

// Capture captures a stream of the machine, as a host program with CUDA graphs does: on
// a thread of its own, which is not the caller's. end ends the capture, at the latest
// when the test ends, and returns an error if the capture was invalidated. The captured
// work does not run.
func (m *Machine) Capture(t testing.TB, s device.Stream, mode int) (end func() error) {
	end, err := m.TryCapture(s, mode)
	require.NoError(t, err)
	t.Cleanup(func() { _ = end() })
	return end
}

// TryCapture is Capture with an error, whose caller ends the capture.
func (m *Machine) TryCapture(s device.Stream, mode int) (end func() error, err error) {
	driver, err := cuda.Open(m.path)
	if err != nil {
		return nil, err
	}
	dev, err := driver.Device(int(s.Device().ID().Ordinal))
	if err != nil {
		return nil, err
	}
	began, leave, ended := make(chan error), make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ctx, err := dev.Context()
		if err != nil {
			began <- err
			return
		}
		if err := ctx.BeginCapture(s.Handle(), mode); err != nil {
			began <- errors.Join(err, ctx.Release())
			return
		}
		began <- nil
		<-leave
		ended <- errors.Join(ctx.EndCapture(s.Handle()), ctx.Release())
	}()
	if err := <-began; err != nil {
		return nil, err
	}
	return sync.OnceValue(func() error {
		close(leave)
		return <-ended
	}), nil
}

// BlockingStream makes a stream that is ordered with the legacy default stream, as those
// of a host program may be; it is destroyed when the test ends.
func (m *Machine) BlockingStream(t testing.TB, gpu *cudaalloc.Device) device.Stream {
	ctx := m.retain(t, gpu.ID().Ordinal)
	h, err := ctx.NewBlockingStream()
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, ctx.FreeStream(h))
		assert.NoError(t, ctx.Release())
	})
	s, err := gpu.WrapStream(h)
	require.NoError(t, err)
	return s
}
