package gpu_test

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

func TestLimitsAreThoseThatWereSet(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu := m.GPUs[0]
	first := gpu.Limits()
	for _, n := range []int64{first.PinnedIdle, first.ManagedIdle, first.DeviceIdle, first.Waiting, int64(first.IdleAfter)} {
		assert.Positive(t, n, "%+v", first)
	}
	want := cudaalloc.Limits{PinnedIdle: 1, ManagedIdle: 2, DeviceIdle: 3, Waiting: 4, IdleAfter: 5 * time.Second}
	require.NoError(t, gpu.SetLimits(want))
	assert.Equal(t, want, gpu.Limits())
	assert.Equal(t, want, gpu.Pinned().Limits(), "the kinds of memory share them")
	assert.Equal(t, first, m.GPUs[1].Limits(), "GPUs do not")
	for _, wrong := range []cudaalloc.Limits{{PinnedIdle: -1}, {ManagedIdle: -1}, {DeviceIdle: -1}, {Waiting: -1}, {IdleAfter: -1}} {
		assert.Error(t, gpu.SetLimits(wrong), "%+v", wrong)
		assert.Equal(t, want, gpu.Limits())
	}
}

// Unused memory is cached up to a limit, and counted.
func TestCachesKeepNoMoreThanTheirLimit(t *testing.T) {
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		if k.made == "cuMemAllocFromPoolAsync" {
			k.m.Sim.ResetCounters()
			k.idle(t, 8*mib, time.Hour)
			assert.Positive(t, k.m.Sim.Calls("cuMemPoolSetAttribute"), "the release threshold of the pool")
			return
		}
		before := k.bytes()
		k.idle(t, 8*mib, time.Hour)
		k.together(t, 64, mib)
		within.Eventually(t, "the rest is given back", func() bool {
			return k.usage().Live == 0 && k.bytes()-before <= 8*mib && k.usage().Cached <= 8*mib
		})
		assert.Positive(t, k.usage().Cached, "some of it is kept")
		assert.Equal(t, k.usage().Cached, k.bytes()-before, "and counted")
		k.m.Sim.ResetCounters()
		k.together(t, 4, mib)
		assert.Zero(t, k.m.Sim.Calls(k.made), "what is kept is used again")

		require.NoError(t, k.Trim(seconds(t, 5)))
		assert.Zero(t, k.usage().Cached)
		assert.Equal(t, before, k.bytes())

		k.idle(t, 0, time.Hour)
		k.together(t, 8, mib)
		within.Eventually(t, "nothing is kept", func() bool { return k.bytes() == before && k.usage().Cached == 0 })
	})
}

// Memory that was not used for a while goes back to the driver, even if the limit would allow
// keeping it.
func TestIdleMemoryGoesBack(t *testing.T) {
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		if k.made == "cuMemAllocFromPoolAsync" {
			k.idle(t, 256*mib, 50*time.Millisecond)
			k.m.Sim.ResetCounters()
			k.together(t, 16, mib)
			within.Eventually(t, "the pool is trimmed", func() bool { return k.m.Sim.Calls("cuMemPoolTrimTo") > 0 })
			return
		}
		before := k.bytes()
		k.idle(t, 256*mib, 200*time.Millisecond)
		k.together(t, 16, mib)
		within.Eventually(t, "what is kept goes back", func() bool { return k.bytes() == before && k.usage().Cached == 0 })
		k.together(t, 16, mib)
		within.Eventually(t, "and again", func() bool { return k.bytes() == before && k.usage().Cached == 0 })
	})
}

// The cache of AllocateHost and of staging is one of them.
func TestStagingMemoryGoesBack(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	before := m.Sim.Report().Live.HostBytes
	limited(t, gpu, func(l *cudaalloc.Limits) { l.PinnedIdle, l.IdleAfter = 256*mib, 200*time.Millisecond })
	s, err := gpu.NewStream()
	require.NoError(t, err)
	mem, err := gpu.Allocate(background, 100*mib, s)
	require.NoError(t, err)
	content := make([]byte, 100*mib)
	defer runtime.KeepAlive(content)
	e, err := gpu.Upload(background, []device.Range{{Dst: mem.Ptr(), Src: cudatest.Pointer(content), Size: int64(len(content))}}, s)
	require.NoError(t, err)
	require.NoError(t, e.Synchronize(background))
	require.NoError(t, e.Close())
	host, err := gpu.AllocateHost(background, 20*mib)
	require.NoError(t, err)
	require.NoError(t, host.Free(nil))
	require.NoError(t, mem.Free(s))
	require.NoError(t, s.Close())
	within.Eventually(t, "page-locked memory goes back", func() bool {
		return m.Sim.Report().Live.HostBytes == before && gpu.ReadStats().Pinned.Cached == 0
	})
}

// Allocations wait while more memory than the limit waits for pending work.
func TestAllocateWaitsWhereTooMuchWaits(t *testing.T) {
	const bound = 64 * mib
	eachKind(t, cudasim.Options{NoPoison: true}, func(t *testing.T, k *kind) {
		if k.made == "cuMemAllocFromPoolAsync" {
			t.Skip("the driver has what is freed in stream order")
		}
		limited(t, k.Device, func(l *cudaalloc.Limits) { l.Waiting = bound })
		s := k.stream(t)
		open, err := hold(s)
		require.NoError(t, err)
		t.Cleanup(func() {
			if open != nil {
				open()
			}
		})
		rounds := 0
		within.Limit(t, 10*time.Second, "rounds until one waits", func() error {
			for ; rounds < 200; rounds++ {
				ctx, cancel := context.WithTimeout(background, time.Second)
				err := freed(ctx, k.Device, mib, s)
				cancel()
				if err != nil {
					return nil
				}
			}
			return nil
		})
		assert.LessOrEqual(t, rounds, bound/mib+2)
		assert.GreaterOrEqual(t, rounds, bound/mib/2)
		within.Context(t, "Allocate", func(ctx context.Context) error { return freed(ctx, k.Device, mib, s) })
		open()
		open = nil
		within.Seconds(t, "a round afterwards", func() error { return freed(background, k.Device, mib, s) })
		require.NoError(t, s.Synchronize(background))
	})
}

// A shorter time applies to memory that is cached already.
func TestShorterIdleTimeAppliesAtOnce(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, before := range []time.Duration{time.Hour, 0} {
		limited(t, gpu, func(l *cudaalloc.Limits) { l.PinnedIdle, l.IdleAfter = 256*mib, before })
		host, err := gpu.Pinned().Allocate(background, mib, nil)
		require.NoError(t, err)
		require.NoError(t, host.FreeAfter(nil))
		require.Positive(t, gpu.ReadStats().Pinned.Cached)
		limited(t, gpu, func(l *cudaalloc.Limits) { l.PinnedIdle, l.IdleAfter = 256*mib, 10*time.Millisecond })
		within.Eventually(t, "the memory has gone back", func() bool { return gpu.ReadStats().Pinned.Cached == 0 })
	}
}

// The number of waiting functions and frees is limited, too, even if they free no bytes.
func TestAllocateWaitsWhereTooManyWait(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	open := m.Stranger(t, gpu).Hold(t)
	for range 1<<16 + 1 {
		gpu.AfterWork(func() {})
	}
	for _, size := range []int64{0, 1} {
		within.Context(t, "Allocate", func(ctx context.Context) error { _, err := gpu.Allocate(ctx, size, nil); return err })
	}
	open()
	require.NoError(t, gpu.Flush(background))
	mem, err := gpu.Allocate(background, 1, nil)
	require.NoError(t, err)
	require.NoError(t, mem.Free(nil))
}
