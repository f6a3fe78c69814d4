package gpu_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// cachedKinds runs test for the kinds of memory that come from a cache.
func cachedKinds(t *testing.T, o cudasim.Options, test func(*testing.T, kind)) {
	eachKind(t, o, func(t *testing.T, k kind) {
		if k.pooled() {
			t.Skip("it is freed in stream order")
		}
		test(t, k)
	})
}

// busy keeps the GPU busy until end is called, at the latest when the test ends: a wait for all its work takes a millisecond
// at least, whenever it begins, since one of two streams is held then for that much longer.
func busy(t *testing.T, g cudatest.GPU) (end func()) {
	one, other := g.Stream(), g.Stream()
	var stop atomic.Bool
	var work sync.WaitGroup
	open := pend(t, g, one)
	work.Go(func() {
		for !stop.Load() {
			next := pend(t, g, other)
			time.Sleep(time.Millisecond)
			open()
			one, other, open = other, one, next
		}
		open()
	})
	end = sync.OnceFunc(func() { stop.Store(true); work.Wait() })
	t.Cleanup(end)
	return end
}

// pend holds a stream, also while memory is given back to the driver, until open is called.
func pend(t *testing.T, g cudatest.GPU, s device.Stream) (open func()) {
	e, err := g.NewEvent()
	assert.NoError(t, err)
	assert.NoError(t, g.M.Sim.HoldEvent(e.Handle()))
	assert.NoError(t, s.Record(e))
	return func() {
		assert.NoError(t, g.M.Sim.FireEvent(e.Handle()))
		assert.NoError(t, e.Close())
	}
}

// Work that another library enqueues while the context is synchronised does not make a free wait in the driver, which
// would hold up all threads.
func TestFreesOfCachedMemoryHoldUpNobody(t *testing.T) {
	cachedKinds(t, cudasim.Options{}, func(t *testing.T, k kind) {
		before, later := k.M.Stranger(t, k.Own()), k.M.Stranger(t, k.Own())
		s, used, mem := k.Stream(), k.Ready(64), k.Ready(mib)
		open := before.Hold(t)
		k.M.Sim.ResetCounters()
		k.idle(t, 0, 0)
		require.NoError(t, mem.FreeAfter(nil))
		within.Eventually(t, "the context is synchronised", func() bool { return k.M.Sim.Calls("cuCtxSynchronize") > 0 })
		openLater := later.Hold(t)
		open()
		within.Seconds(t, "work of another thread", func() error {
			for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
				k.Fill(used.Ptr(), 1, 64, s)
				if err := s.Synchronize(background); err != nil {
					return err
				}
			}
			return nil
		})
		_, held := k.usage()
		assert.GreaterOrEqual(t, held, int64(mib))
		openLater()
		within.Eventually(t, "the memory is given back", func() bool {
			_, now := k.usage()
			return now <= held-mib
		})
	})
}

// Cached memory is not given back to the driver while the GPU works, unless it is needed.
func TestCachedMemoryWaitsUntilItIsNeeded(t *testing.T) {
	cachedKinds(t, cudasim.Options{}, func(t *testing.T, k kind) {
		mem := k.Ready(mib)
		k.idle(t, 0, 0)
		end := busy(t, k.GPU)
		k.M.Sim.ResetCounters()
		require.NoError(t, mem.FreeAfter(nil))
		within.Eventually(t, "the context is synchronised", func() bool { return k.M.Sim.Calls("cuCtxSynchronize") > 5 })
		assert.Zero(t, k.M.Sim.Calls("cuMemFree")+k.M.Sim.Calls("cuMemFreeHost"))
		within.Seconds(t, "Flush", func() error { return k.Flush(background) })
		assert.Equal(t, 1, k.M.Sim.Calls("cuMemFree")+k.M.Sim.Calls("cuMemFreeHost"))
		end()
	})
}

// Memory that the program has freed, and that no cache keeps, is freed soon although the GPU works all the time.
func TestOtherMemoryWaitsForASecond(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	mem := g.M.On(t, g.Shareable()).Ready(mib)
	end := busy(t, g)
	g.M.Sim.ResetCounters()
	require.NoError(t, mem.FreeAfter(nil))
	within.Eventually(t, "it is freed", func() bool { return g.M.Sim.Calls("cuMemFree") > 0 })
	assert.Greater(t, g.M.Sim.Calls("cuCtxSynchronize"), 1, "it has waited")
	end()
}
