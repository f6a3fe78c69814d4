package gpu_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A function of OnTrim that does not return keeps nothing waiting longer than its context, and
// no allocation longer than two seconds.
func TestOnTrimThatBlocks(t *testing.T) {
	eachKind(t, cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}, func(t *testing.T, k *kind) {
		if k.made == "cuMemAllocManaged" {
			t.Skip("simulated managed memory has no limit")
		}
		if testing.Short() && k.made != "cuMemHostAlloc" {
			t.Skip("seconds for each kind, which all end in the same code")
		}
		block := make(chan struct{})
		var running, most, called atomic.Int32
		heapOf(k.Device).OnTrim(func() {
			most.Store(max(most.Load(), running.Add(1)))
			called.Add(1)
			<-block
			running.Add(-1)
		})
		mem := k.allocated(t, 40*mib)
		s := k.stream(t)
		allocate := func(ctx context.Context) error { return freed(ctx, k.Device, 40*mib, s) }
		for range 3 {
			within.Context(t, "Allocate", allocate)
			within.Context(t, "Trim", k.Trim)
		}
		result := make(chan error, 1)
		go func() { result <- allocate(background) }()
		within.Eventually(t, "it waits", heapOf(k.Device).Reclaiming)
		require.NoError(t, mem.FreeAfter(nil))
		within.Limit(t, 20*time.Second, "memory that comes from elsewhere", func() error { return <-result })
		within.Limit(t, 20*time.Second, "memory that is only kept", func() error {
			return freed(background, k.Device, 56*mib, s)
		})
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
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	trims := 0
	heapOf(gpu).OnTrim(func() { panic("thrown by a test of OnTrim") })
	heapOf(gpu).OnTrim(func() { trims++ })
	require.NoError(t, gpu.Trim(background))
	assert.Equal(t, 1, trims)
	assert.EqualValues(t, 1, gpu.ReadStats().CallbackPanics)
	heapOf(gpu).OnTrim(runtime.Goexit)
	for range 2 {
		within.Seconds(t, "Trim", func() error { return gpu.Trim(background) })
	}
	assert.Equal(t, 3, trims)
}
