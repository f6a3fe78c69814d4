package cdevice_test

import (
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// polled returns when the events of all that waits for one have been asked for.
func polled(t *testing.T, gpu *cudaalloc.Device) {
	t.Helper()
	within.Seconds(t, "a query of all events", func() error { core.Of(gpu).Deferred.Poll(); return nil })
}

// The memory of an import waits for the streams that UsedOn named, and for no other stream of the
// device.
func TestGPUUsedOnWaitsForItsStreamsAlone(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		one, two := newStream(t, gpu), newStream(t, gpu)
		released := new(atomic.Bool)
		a := pendingArray(t, gpu, released)
		require.NoError(t, a.Synchronize(background))
		open := m.Hold(t, two)
		m.Stranger(t, gpu).Hold(t)
		require.NoError(t, a.UsedOn(one))
		require.NoError(t, a.UsedOn(two))
		a.Release()
		require.NoError(t, one.Synchronize(background))
		polled(t, gpu)
		assert.False(t, released.Load(), "the other stream has work to do")
		open()
		within.Eventually(t, "its release, while the stream of another library is stuck", released.Load)
	})
}

// Streams on which no event can be recorded when the memory is released: all work of the device is
// waited for.
func TestGPUUsedOnAStreamThatCannotBeAsked(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for name, row := range map[string]struct {
			stream func(*testing.T) device.Stream
			// before makes the stream what its name says; after undoes it
			before func(*testing.T, device.Stream) (after func())
		}{
			"closed": {
				func(t *testing.T) device.Stream {
					s, err := gpu.NewStream()
					require.NoError(t, err)
					return s
				},
				func(t *testing.T, s device.Stream) func() {
					require.NoError(t, s.Close())
					return func() {}
				},
			},
			"captured": {
				func(t *testing.T) device.Stream { return newStream(t, gpu) },
				func(t *testing.T, s device.Stream) func() {
					end := m.Capture(t, s, cudatest.Global)
					return func() { assert.NoError(t, end(), "the capture is valid") }
				},
			},
			"another one for each thread": {
				func(*testing.T) device.Stream { return gpu.PerThread() },
				func(*testing.T, device.Stream) func() { return func() {} },
			},
		} {
			t.Run(name, func(t *testing.T) {
				released := new(atomic.Bool)
				a := pendingArray(t, gpu, released)
				require.NoError(t, a.Synchronize(background))
				require.NoError(t, gpu.Flush(background))
				s := row.stream(t)
				require.NoError(t, a.UsedOn(s))
				after := row.before(t, s)
				open := m.Stranger(t, gpu).Hold(t)
				a.Release()
				polled(t, gpu)
				assert.False(t, released.Load())
				after()
				polled(t, gpu)
				assert.False(t, released.Load(), "a stream has work to do")
				open()
				within.Eventually(t, "its release", released.Load)
				require.NoError(t, gpu.Flush(background))
			})
		}
	})
}

// A stream that was closed has a handle that may be another stream's: the driver is not asked about it.
func TestUsedOnAsksNothingOfAClosedStream(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	a := pendingArray(t, gpu, new(atomic.Bool))
	require.NoError(t, a.Synchronize(background))
	s, err := gpu.NewStream()
	require.NoError(t, err)
	require.NoError(t, a.UsedOn(s))
	require.NoError(t, s.Close())
	hold, err := gpu.HoldSynchronization(background) // nor about the others
	require.NoError(t, err)
	m.Sim.ResetCounters()
	a.Release()
	assert.Zero(t, m.Sim.Calls("cuStreamIsCapturing"))
	assert.Zero(t, m.Sim.Calls("cuEventRecord"))
	hold()
	require.NoError(t, gpu.Flush(background))
}

// A stream that is closed when it is named cannot tell when its work is done.
func TestUsedOnAClosedStreamIsRefused(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	a := pendingArray(t, gpu, new(atomic.Bool))
	defer a.Release()
	require.NoError(t, a.Synchronize(background))
	s, err := gpu.NewStream()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	err = a.UsedOn(s)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "stream")
}
