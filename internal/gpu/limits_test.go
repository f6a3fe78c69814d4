package gpu_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Unused memory is cached up to a limit, and counted.
func TestCachesKeepNoMoreThanTheirLimit(t *testing.T) {
	eachKind(t, cudasim.Options{}, func(t *testing.T, k kind) {
		if k.pooled() {
			k.M.Sim.ResetCounters()
			k.idle(t, 8*mib, time.Hour)
			assert.Positive(t, k.M.Sim.Calls("cuMemPoolSetAttribute"), "the release threshold of the pool")
			return
		}
		_, before := k.usage()
		// kept reports whether at most so many bytes are kept, all of which are counted.
		kept := func(most int64) func() bool {
			return func() bool {
				use, bytes := k.usage()
				return use.Live == 0 && use.Cached <= most && use.Cached == bytes-before
			}
		}
		k.idle(t, 8*mib, time.Hour)
		k.together(t, 64, mib)
		within.Eventually(t, "the rest is given back", kept(8*mib))
		use, _ := k.usage()
		assert.Positive(t, use.Cached, "some of it is kept")
		k.M.Sim.ResetCounters()
		k.together(t, 4, mib)
		assert.Zero(t, k.M.Sim.Calls(k.made), "what is kept is used again")

		require.NoError(t, k.Trim(seconds(t, 5)))
		assert.True(t, kept(0)())

		k.idle(t, 0, time.Hour)
		k.together(t, 8, mib)
		within.Eventually(t, "nothing is kept", kept(0))
	})
}

// Memory that was not used for a while goes back to the driver, even if the limit would allow
// keeping it.
func TestIdleMemoryGoesBack(t *testing.T) {
	eachKind(t, cudasim.Options{}, func(t *testing.T, k kind) {
		if k.pooled() {
			k.idle(t, 256*mib, 50*time.Millisecond)
			k.M.Sim.ResetCounters()
			k.together(t, 16, mib)
			within.Eventually(t, "the pool is trimmed", func() bool { return k.M.Sim.Calls("cuMemPoolTrimTo") > 0 })
			return
		}
		_, before := k.usage()
		k.idle(t, 256*mib, 50*time.Millisecond)
		for range 2 {
			k.together(t, 16, mib)
			within.Eventually(t, "what is kept goes back", func() bool {
				use, bytes := k.usage()
				return bytes == before && use.Cached == 0
			})
		}
	})
}

// The cache of AllocateHost and of staging is one of them.
func TestStagingMemoryGoesBack(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	before := g.M.Sim.Report().Live.HostBytes
	limited(t, g, func(l *cudaalloc.Limits) { l.PinnedIdle, l.IdleAfter = 256*mib, 50*time.Millisecond })
	s := g.Stream()
	mem := g.Memory(100*mib, s)
	require.NoError(t, g.Send(mem.Ptr(), make([]byte, 100*mib), s).Synchronize(background))
	host, err := g.AllocateHost(background, 20*mib)
	require.NoError(t, err)
	require.NoError(t, host.Free(nil))
	within.Eventually(t, "page-locked memory goes back", func() bool {
		return g.M.Sim.Report().Live.HostBytes == before && g.ReadStats().Pinned.Cached == 0
	})
}

// Allocations wait while more memory than the limit waits for pending work.
func TestAllocateWaitsWhereTooMuchWaits(t *testing.T) {
	const bound = 64 * mib
	eachKind(t, cudasim.Options{NoPoison: true}, func(t *testing.T, k kind) {
		if k.pooled() {
			t.Skip("the driver has what is freed in stream order")
		}
		limited(t, k.GPU, func(l *cudaalloc.Limits) { l.Waiting = bound })
		s, open := k.Held()
		rounds := 0
		within.Seconds(t, "rounds until one waits", func() error {
			for ; rounds < 200 && k.ReadStats().WaitingBytes <= bound; rounds++ {
				if err := freed(background, k.GPU, mib, s); err != nil {
					return err
				}
			}
			return nil
		})
		assert.Equal(t, bound/mib+1, rounds)
		within.Context(t, "Allocate", func(ctx context.Context) error { return freed(ctx, k.GPU, mib, s) })
		open()
		within.Seconds(t, "a round afterwards", func() error { return freed(background, k.GPU, mib, s) })
		require.NoError(t, s.Synchronize(background))
	})
}

// A shorter time applies to memory that is cached already.
func TestShorterIdleTimeAppliesAtOnce(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	g := m.On(t, m.GPUs[0].Pinned())
	for _, before := range []time.Duration{time.Hour, 0} {
		limited(t, g, func(l *cudaalloc.Limits) { l.PinnedIdle, l.IdleAfter = 256*mib, before })
		require.NoError(t, g.Memory(mib, nil).FreeAfter(nil))
		require.Positive(t, g.ReadStats().Pinned.Cached)
		limited(t, g, func(l *cudaalloc.Limits) { l.IdleAfter = 10 * time.Millisecond })
		within.Eventually(t, "the memory has gone back", func() bool { return g.ReadStats().Pinned.Cached == 0 })
	}
}

// The number of waiting functions and frees is limited, too, even if they free no bytes.
func TestAllocateWaitsWhereTooManyWait(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	open := g.M.Stranger(t, g.Device).Hold(t)
	g.AfterWork(func() {})
	core.Of(g.Device).Deferred.CountItems(1 << 16)
	for _, size := range []int64{0, 1} {
		within.Context(t, "Allocate", func(ctx context.Context) error { _, err := g.Allocate(ctx, size, nil); return err })
	}
	open()
	require.NoError(t, g.Flush(background))
	g.Memory(1, nil)
	core.Of(g.Device).Deferred.CountItems(-1 << 16)
}
