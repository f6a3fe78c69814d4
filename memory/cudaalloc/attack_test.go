package cudaalloc_test

import (
	"runtime"
	"sync"
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

// Findings of hostile programs.

// A reset of the primary context unmaps page-locked memory while uploads write to it: that is
// an error of theirs, and not the end of the process.
func TestResetWhileUploading(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	src := make([]byte, 8*mib)
	defer runtime.KeepAlive(src)
	for range 5 {
		gpu, err := cudaalloc.Open(0, m.Driver())
		require.NoError(t, err)
		var uploads sync.WaitGroup
		for range 3 {
			uploads.Go(func() {
				s, err := gpu.NewStream()
				if err != nil {
					return // the reset came first
				}
				mem, err := gpu.Allocate(background, 8*mib, s)
				if err != nil {
					return
				}
				for !gpu.Gone() {
					if e, err := gpu.Upload(background, []device.Range{{Dst: mem.Ptr(), Src: pointer(src), Size: 8 * mib}}, s); err == nil {
						_ = e.Close()
					}
				}
				_ = mem.Free(s)
				_ = s.Close()
			})
		}
		time.Sleep(10 * time.Millisecond)
		m.ResetPrimary(t, 0)
		again, err := cudaalloc.Open(0, m.Driver())
		require.NoError(t, err)
		within.Seconds(t, "the uploads", func() error { uploads.Wait(); return nil })
		within.Eventually(t, "what the old GPU had has ended", func() bool { return gpu.ReadStats().Device.Live == 0 && gpu.ReadStats().Waiting == 0 })
		assert.Zero(t, again.ReadStats())
	}
}

// A function that is called on the goroutine of OnComplete is guarded like any other.
func TestPanicOfAFunctionThatIsCalledAtOnce(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	before := gpu.ReadStats().CallbackPanics
	assert.NotPanics(t, func() { e.OnComplete(func() { panic("on purpose") }) })
	assert.Equal(t, before+1, gpu.ReadStats().CallbackPanics)
	require.NoError(t, e.Close())
}

// Flush also waits for blocks that a cache was given and does not keep.
func TestFlushLeavesNothingWaiting(t *testing.T) {
	for name, o := range map[string]cudasim.Options{"in order": {}, "lazy": {Lazy: true}, "delayed": {Delay: 100 * time.Microsecond}} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, o)
			gpu := m.GPUs[0]
			s, err := gpu.NewStream()
			require.NoError(t, err)
			limited(t, gpu, func(l *cudaalloc.Limits) { l.PinnedIdle = 0 })
			for range 50 {
				host, err := gpu.Pinned().Allocate(background, 10_000, s)
				require.NoError(t, err)
				require.NoError(t, gpu.Memset(host.Ptr(), 1, 10_000, s))
				require.NoError(t, host.Free(s))
				require.NoError(t, gpu.Flush(background))
				require.Zero(t, gpu.ReadStats().Waiting)
			}
			require.NoError(t, s.Close())
		})
	}
}

// Many functions that block are run beside others, which need not wait long.
func TestManyBlockedFunctions(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const blocked = 200
	gate := make(chan struct{})
	var all sync.WaitGroup
	all.Add(blocked)
	for range blocked {
		gpu.AfterWork(func() { <-gate; all.Done() })
	}
	called := make(chan struct{})
	gpu.AfterWork(func() { close(called) })
	within.Seconds(t, "a function behind those that block", func() error { <-called; return nil })
	close(gate)
	within.Seconds(t, "those that blocked", func() error { all.Wait(); return nil })
}
