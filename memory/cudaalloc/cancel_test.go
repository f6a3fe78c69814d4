package cudaalloc_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Waits that their context ends, while a stream is stuck. The contract has those of every
// device.

// Waits for the work of the whole GPU end with their context, lose nothing, and can be repeated.
func TestGPUContextsEndWaitsForTheGPU(t *testing.T) {
	page := make([]byte, 4096)
	for name, row := range map[string]struct {
		prepare func(*testing.T, *cudaalloc.Device)
		wait    func(context.Context, *cudaalloc.Device) error
	}{
		"Flush": {
			func(t *testing.T, gpu *cudaalloc.Device) { gpu.AfterWork(func() {}) },
			func(ctx context.Context, gpu *cudaalloc.Device) error { return gpu.Flush(ctx) },
		},
		"Trim": {
			func(t *testing.T, gpu *cudaalloc.Device) { gpu.AfterWork(func() {}) },
			func(ctx context.Context, gpu *cudaalloc.Device) error { return gpu.Trim(ctx) },
		},
		"UnregisterHost": {
			func(t *testing.T, gpu *cudaalloc.Device) {
				require.NoError(t, gpu.RegisterHost(cudatest.Pointer(page), int64(len(page)), false))
			},
			func(ctx context.Context, gpu *cudaalloc.Device) error {
				return gpu.UnregisterHost(ctx, cudatest.Pointer(page))
			},
		},
	} {
		for _, options := range []cudasim.Options{{}, {NoPools: true}} {
			t.Run(name, func(t *testing.T) {
				m := cudatest.One(t, options)
				gpu := m.GPUs[0]
				stranger := m.Stranger(t, gpu)
				open := stranger.Hold(t)
				row.prepare(t, gpu)
				ended, cancel := context.WithCancel(background)
				cancel()
				for range 3 {
					within.Context(t, name, func(ctx context.Context) error { return row.wait(ctx, gpu) })
					within.Seconds(t, name+" with a context that has ended", func() error {
						assert.ErrorIs(t, row.wait(ended, gpu), context.Canceled)
						return nil
					})
				}
				if name == "UnregisterHost" {
					assert.True(t, gpu.PageLocked(cudatest.Pointer(page), int64(len(page))), "it is registered still")
				}
				waits := make(chan error, 1)
				go func() { waits <- row.wait(background, gpu) }()
				open()
				within.Seconds(t, name+" when the stream goes on", func() error { return <-waits })
				assert.Zero(t, gpu.ReadStats().Lost)
				if name == "UnregisterHost" {
					assert.False(t, gpu.PageLocked(cudatest.Pointer(page), int64(len(page))))
				}
			})
		}
	}
}

// Large uploads wait for room on their own: other uploads go on, and staged memory is not lost.
func TestGPUContextsEndUploadsThatWait(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s, err := gpu.NewStream()
	require.NoError(t, err)
	content := make([]byte, 96<<20)
	defer runtime.KeepAlive(content)
	mem, err := gpu.Allocate(background, int64(len(content)), s)
	require.NoError(t, err)
	open, err := cudaalloc.Hold(s)
	require.NoError(t, err)
	for range 3 {
		within.Context(t, "Upload", func(ctx context.Context) error {
			e, err := gpu.Upload(ctx, []device.Range{{Dst: mem.Ptr(), Src: cudatest.Pointer(content), Size: int64(len(content))}}, s)
			if err != nil {
				return err
			}
			return e.Close()
		})
	}
	assert.Less(t, gpu.ReadStats().Pinned.Peak, int64(160<<20))
	open()
	within.Seconds(t, "the work", func() error { return s.Synchronize(background) })
	require.NoError(t, mem.Free(s))
	require.NoError(t, s.Close())
	require.NoError(t, gpu.Trim(seconds(t, 5)))
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}

// An event whose waits have all been abandoned, and which its owner then destroys, is not used any
// more.
func TestWaitsThatWereGivenUpLeaveTheEventAlone(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, cancelled := range []bool{false, true} {
		producer := m.Stranger(t, gpu)
		open := producer.Hold(t)
		word, destroy := producer.Event(t)
		e, err := gpu.WrapEvent(word)
		require.NoError(t, err)
		for range 20 {
			if !cancelled {
				within.Context(t, "Event.Synchronize", e.Synchronize)
				continue
			}
			ctx, cancel := context.WithCancel(background)
			result := make(chan error, 1)
			go func() { result <- e.Synchronize(ctx) }()
			time.Sleep(time.Millisecond) // in which it begins to wait
			cancel()
			within.Seconds(t, "a wait that was cancelled", func() error {
				assert.ErrorIs(t, <-result, context.Canceled)
				return nil
			})
		}
		require.NoError(t, e.Close())
		m.Sim.ResetCounters()
		require.NoError(t, destroy())
		time.Sleep(50 * time.Millisecond) // in which a wait that is left asks again
		open()
		require.NoError(t, producer.Synchronize())
		time.Sleep(10 * time.Millisecond)
		r := m.Sim.Report()
		assert.Zero(t, r.FailedCalls, "of the event that was destroyed")
		assert.Zero(t, r.Calls["cuEventQuery"]+r.Calls["cuEventSynchronize"], "of the event that was destroyed")
		assert.Empty(t, r.Violations)
	}
}
