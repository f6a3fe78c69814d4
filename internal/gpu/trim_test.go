package gpu_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Trim frees staging memory, after waiting for its copies.
func TestTrimWaitsForWhatIsStaged(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{Lazy: true})
	s := g.Stream()
	own := g.Memory(1000, s)
	require.NoError(t, g.Send(own.Ptr(), make([]byte, 1000), s).Close())
	assert.NotZero(t, g.ReadStats().Pinned.Live)
	require.NoError(t, g.Trim(background))
	assert.Zero(t, g.ReadStats().Pinned.Live)
}

// Trim waits for memory that its functions free in stream order, before it trims the pool.
func TestTrimWaitsForWhatItFrees(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{Lazy: true})
	s := g.Stream()
	own := g.Memory(1000, s)
	var freed atomic.Bool
	heapOf(g).OnTrim(func() {
		if !freed.Swap(true) {
			assert.NoError(t, own.Free(s))
		}
	})
	require.NoError(t, g.Trim(background))
	assert.True(t, freed.Load())
	assert.True(t, g.Done(s))
}

// Functions of AfterWork may give memory back to caches: Trim waits for them before it empties the
// caches. The function takes long enough to show a Trim that does not wait.
func TestTrimComesAfterWhatIsPutOff(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	mem, err := cudaalloc.NewManagedAllocator(g.Device)
	require.NoError(t, err)
	b := mem.Allocate(1000)
	trimmed, begun := make(chan struct{}), make(chan struct{})
	heapOf(g).OnTrim(sync.OnceFunc(func() { close(trimmed) }))
	g.AfterWork(func() {
		close(begun)
		select {
		case <-trimmed:
			t.Error("caches were emptied first")
		case <-time.After(100 * time.Millisecond):
		}
		mem.Free(b)
	})
	<-begun
	require.NoError(t, g.Trim(background))
	assert.Zero(t, mem.ReadStats().Held)
	<-trimmed
}

func TestTrimGivesThePoolsMemoryBack(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	require.NoError(t, g.Trim(background))
	assert.Equal(t, 1, g.M.Sim.Calls("cuMemPoolTrimTo"))
	assert.Equal(t, 1, g.M.Sim.Calls("cuMemPoolSetAttribute"), "the pool keeps what is freed")
}

// A function of OnTrim that does not return keeps nothing waiting longer than its context, and
// no allocation longer than two seconds.
func TestOnTrimThatBlocks(t *testing.T) {
	eachKind(t, small, func(t *testing.T, k kind) {
		if k.unlimited() {
			t.Skip("simulated managed memory has no limit")
		}
		if testing.Short() && k.made != "cuMemHostAlloc" {
			t.Skip("seconds for each kind, which all end in the same code")
		}
		block := make(chan struct{})
		var running, most, called atomic.Int32
		heapOf(k.GPU).OnTrim(func() {
			most.Store(max(most.Load(), running.Add(1)))
			called.Add(1)
			<-block
			running.Add(-1)
		})
		s, mem := k.Stream(), k.Ready(40*mib)
		allocate := func(ctx context.Context) error { return freed(ctx, k.GPU, 40*mib, s) }
		for range 3 {
			within.Context(t, "Allocate", allocate)
			within.Context(t, "Trim", k.Trim)
		}
		result := make(chan error, 1)
		go func() { result <- allocate(background) }()
		within.Eventually(t, "it waits", heapOf(k.GPU).Reclaiming)
		require.NoError(t, mem.FreeAfter(nil))
		within.Seconds(t, "memory that comes from elsewhere", func() error { return <-result })
		within.Seconds(t, "memory that is only kept", func() error { return freed(background, k.GPU, 56*mib, s) })
		assert.EqualValues(t, 1, called.Load(), "one call is enough to block")

		close(block)
		require.NoError(t, k.Trim(seconds(t, 5)))
		assert.EqualValues(t, 2, called.Load())
		assert.EqualValues(t, 1, most.Load(), "one at a time")
		require.NoError(t, s.Synchronize(background))
	})
}

// A function that panics, or ends its goroutine, ends neither Trim nor the next one's turn.
func TestOnTrimThatPanicsIsCounted(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	trims := 0
	heapOf(g).OnTrim(func() { panic("thrown by a test of OnTrim") })
	heapOf(g).OnTrim(func() { trims++ })
	require.NoError(t, g.Trim(background))
	assert.Equal(t, 1, trims)
	assert.EqualValues(t, 1, g.ReadStats().CallbackPanics)
	heapOf(g).OnTrim(runtime.Goexit)
	for range 2 {
		within.Seconds(t, "Trim", func() error { return g.Trim(background) })
	}
	assert.Equal(t, 3, trims)
}
