package cuda_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// retained is a context of a machine with two devices, and the machine.
func retained(t *testing.T, o cudasim.Options) (*cudatest.Machine, *cuda.Context) {
	o.Devices = 2
	return retainedOf(t, cudatest.Simulated(t, o))
}

// retainedOf returns a machine with the primary context of its first GPU, which the test retains.
func retainedOf(t *testing.T, m *cudatest.Machine) (*cudatest.Machine, *cuda.Context) {
	driver, err := cuda.Open(m.Path())
	require.NoError(t, err)
	dev, err := driver.Device(0)
	require.NoError(t, err)
	ctx, err := dev.Context()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ctx.Release()) })
	return m, ctx
}

// unsafeCalls are the methods of a context that work at once, without a stream.
func unsafeCalls(t *testing.T, ctx *cuda.Context) map[string]func() error {
	page := make([]byte, 4096)
	at := device.Ptr(heap.AddressOf(page))
	stream, err := ctx.NewStream(0)
	require.NoError(t, err)
	event, err := ctx.NewEvent()
	require.NoError(t, err)
	require.NoError(t, ctx.Record(event, stream))
	pool, err := ctx.NewPool()
	if !errors.Is(err, device.ErrNotSupported) {
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, ctx.FreePool(pool)) })
	}
	t.Cleanup(func() {
		assert.NoError(t, ctx.FreeEvent(event))
		assert.NoError(t, ctx.FreeStream(stream))
	})
	calls := map[string]func() error{
		"memory": func() error {
			p, err := ctx.NewMemory(64)
			return first(err, func() error { return ctx.FreeMemory(p) })
		},
		"managed": func() error {
			p, err := ctx.NewManaged(64)
			return first(err, func() error { return ctx.FreeMemory(p) })
		},
		"host": func() error { p, err := ctx.NewHost(64); return first(err, func() error { return ctx.FreeHost(p) }) },
		"register": func() error {
			return first(ctx.Register(at, int64(len(page)), false), func() error { return ctx.Unregister(at) })
		},
		"pool": func() error {
			p, err := ctx.NewPool()
			return first(err, func() error { return first(ctx.TrimPool(p), func() error { return ctx.FreePool(p) }) })
		},
		"pool memory": func() error {
			p, err := ctx.NewPoolMemory(pool, 64, stream)
			return first(err, func() error { return ctx.FreePoolMemory(p, stream) })
		},
		"pool attribute":     func() error { return ctx.SetReleaseThreshold(pool, 1<<20) },
		"stream":             func() error { s, err := ctx.NewStream(0); return first(err, func() error { return ctx.FreeStream(s) }) },
		"event":              func() error { e, err := ctx.NewEvent(); return first(err, func() error { return ctx.FreeEvent(e) }) },
		"query stream":       func() error { _, err := ctx.QueryStream(stream); return err },
		"synchronize stream": func() error { return ctx.SynchronizeStream(stream) },
		"query event":        func() error { _, err := ctx.QueryEvent(event); return err },
		"synchronize event":  func() error { return ctx.SynchronizeEvent(event) },
		"context": func() error {
			again, err := ctx.Device.Context()
			return first(err, func() error { return again.Release() })
		},
	}
	// A GPU in parts, as virtual machines have them, may lack these.
	for name, attribute := range map[string]cuda.Attribute{"pool": cuda.MemoryPoolsSupported, "pool memory": cuda.MemoryPoolsSupported,
		"pool attribute": cuda.MemoryPoolsSupported, "managed": cuda.ManagedMemory, "register": cuda.HostRegisterSupported} {
		if has, err := ctx.Device.Attribute(attribute); assert.NoError(t, err) && has == 0 {
			delete(calls, name)
		}
	}
	return calls
}

func first(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

// Calls that work at once leave the captures of other threads valid, in every mode.
func TestGPUUnsafeCallsLeaveCapturesOfOthersAlone(t *testing.T) {
	m, ctx := retainedOf(t, cudatest.One(t, cudasim.Options{}))
	calls := unsafeCalls(t, ctx)
	captured := cudatest.NewStream(t, m.GPUs[0])
	for _, mode := range []int{cudatest.Global, cudatest.ThreadLocal, cudatest.Relaxed} {
		for name, call := range calls {
			end := m.Capture(t, captured, mode)
			assert.NoError(t, call(), "%s, mode %d", name, mode)
			assert.NoError(t, end(), "%s, mode %d", name, mode)
		}
	}
}

// So do they with a capture of the calling thread, and the mode of the thread is as it
// was before.
func TestUnsafeCallsLeaveTheThreadAsItWas(t *testing.T) {
	m, ctx := retained(t, cudasim.Options{})
	calls := unsafeCalls(t, ctx)
	captured, err := ctx.NewStream(0)
	require.NoError(t, err)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, call := range calls {
		require.NoError(t, ctx.BeginCapture(captured, cudatest.Global))
		assert.NoError(t, call(), name)
		assert.NoError(t, ctx.EndCapture(captured), name)
		mode, err := ctx.Driver().CaptureMode()
		require.NoError(t, err)
		assert.Equal(t, cudatest.Global, mode, name)
	}
	require.NoError(t, ctx.FreeStream(captured))

	m.Sim.Fail("cuThreadExchangeStreamCaptureMode", 2, 999) // the one that restores
	assert.NoError(t, calls["memory"](), "what was asked for has been done")
	_, met := m.Sim.Failed()
	assert.True(t, met)
	mode, err := ctx.Driver().CaptureMode()
	require.NoError(t, err)
	assert.Equal(t, cudatest.Global, mode, "restoring is tried again")
}

// A driver without captures has no modes to exchange.
func TestDriverWithoutCaptures(t *testing.T) {
	m, ctx := retained(t, cudasim.Options{Missing: []string{"cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing"}})
	for name, call := range unsafeCalls(t, ctx) {
		assert.NoError(t, call(), name)
	}
	capturing, err := ctx.Capturing([]uintptr{cuda.LegacyStream})
	assert.NoError(t, err)
	assert.False(t, capturing)
	_, err = ctx.Driver().CaptureMode()
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.Zero(t, m.Sim.Calls("cuThreadExchangeStreamCaptureMode"))
}

func TestCapturing(t *testing.T) {
	m, ctx := retained(t, cudasim.Options{})
	gpu := m.GPUs[0]
	blocking := m.BlockingStream(t, gpu)
	own, other := cudatest.NewStream(t, gpu), cudatest.NewStream(t, gpu)
	asks := func(streams ...uintptr) bool {
		t.Helper()
		capturing, err := ctx.Capturing(streams)
		require.NoError(t, err)
		return capturing
	}
	all := []uintptr{other.Handle(), own.Handle()}
	assert.False(t, asks())
	assert.False(t, asks(all...))

	end := m.Capture(t, blocking, cudatest.Global)
	assert.True(t, asks(), "a stream of the host program, which is not listed")
	assert.NoError(t, end(), "asking invalidates nothing")
	assert.False(t, asks())

	end = m.Capture(t, own, cudatest.Global)
	assert.False(t, asks(), "a non-blocking stream is seen only if it is listed")
	assert.False(t, asks(other.Handle()))
	assert.True(t, asks(all...))
	capturing, err := ctx.Capturing([]uintptr{0xdead0, own.Handle()})
	assert.NoError(t, err, "the answer is known")
	assert.True(t, capturing)
	assert.NoError(t, end())
	_, err = ctx.Capturing([]uintptr{0xdead0, own.Handle()})
	assert.ErrorIs(t, err, cuda.InvalidHandle)

	end = m.Capture(t, own, cudatest.Global)
	assert.Error(t, ctx.Synchronize())
	assert.True(t, asks(all...), "one that was invalidated has not ended")
	assert.Error(t, end())

	m.Sim.ResetCounters()
	assert.False(t, asks(all...))
	assert.Equal(t, 3, m.Sim.Calls("cuStreamIsCapturing"))
}

// A call that is not permitted during a capture returns an error that names the capture.
func TestGPUSynchronizeInvalidatesACapture(t *testing.T) {
	m, ctx := retainedOf(t, cudatest.One(t, cudasim.Options{}))
	end := m.Capture(t, cudatest.NewStream(t, m.GPUs[0]), cudatest.Relaxed)
	var code cuda.Code
	require.True(t, errors.As(ctx.Synchronize(), &code))
	assert.Equal(t, cuda.StreamCaptureUnsupported, code)
	assert.True(t, code.Capture())
	assert.ErrorIs(t, end(), cuda.StreamCaptureInvalidated)
	assert.NoError(t, ctx.Synchronize())
}
