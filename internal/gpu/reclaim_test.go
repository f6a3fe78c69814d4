package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// small is a machine of little memory.
var small = cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}

// An allocation waits for memory that pending work uses until its context ends, or until nothing was freed
// for a while; the error then has the size of that memory.
func TestOutOfMemorySaysWhatWaits(t *testing.T) {
	const piece, pieces = 8 * mib, 7
	eachKind(t, small, func(t *testing.T, k kind) {
		if k.pooled() || k.unlimited() {
			t.Skip("a simulated pool gives out at once what is freed to it; managed memory has no limit")
		}
		limited(t, k.GPU, func(l *cudaalloc.Limits) { l.Waiting = 1 << 40 })
		s := k.Stream()
		var all []device.Memory
		for range pieces {
			all = append(all, k.Ready(piece))
		}
		open := k.M.Hold(t, s)
		for _, mem := range all {
			k.Fill(mem.Ptr(), 1, piece, s)
			require.NoError(t, mem.Free(s))
		}
		for _, limit := range []time.Duration{time.Second, time.Hour} {
			var err error
			within.Seconds(t, "Allocate", func() error {
				ctx, cancel := context.WithTimeout(background, limit)
				defer cancel()
				err = freed(ctx, k.GPU, 2*piece, s)
				return nil
			})
			assert.ErrorIs(t, err, cudaalloc.OutOfMemory, limit)
			assert.ErrorContains(t, err, fmt.Sprint(pieces*piece))
			assert.ErrorContains(t, err, "pending work")
			assert.Equal(t, limit == time.Second, errors.Is(err, context.DeadlineExceeded), limit)
		}
		open()
		within.Seconds(t, "Allocate afterwards", func() error { return freed(background, k.GPU, 2*piece, s) })
		within.Seconds(t, "the work", func() error { return s.Synchronize(background) })
		within.Eventually(t, "everything has ended", k.ended)
	})
}

// An allocation gets memory when the work that uses it is done: of an unknown stream, or of the stream that
// the memory was freed on. One that nothing pending can help fails at once.
func TestAllocateWaitsForPendingWork(t *testing.T) {
	eachKind(t, small, func(t *testing.T, k kind) {
		if k.unlimited() {
			t.Skip("simulated managed memory has no limit")
		}
		s := k.Stream()
		stranger := k.M.Stranger(t, k.Own())
		for what, free := range map[string]func(device.Memory) (open func()){
			"of an unknown stream": func(mem device.Memory) func() {
				open := stranger.Hold(t)
				require.NoError(t, stranger.Memset(mem.Ptr(), 1, 40*mib))
				k.AfterWork(func() { assert.NoError(t, mem.FreeAfter(nil)) })
				return open
			},
			"of its stream": func(mem device.Memory) func() {
				open := k.M.Hold(t, s)
				require.NoError(t, mem.Free(s))
				return open
			},
		} {
			mem := k.Ready(40 * mib)
			_, err := k.Allocate(background, 40*mib, s)
			assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
			open := free(mem)
			result := make(chan error, 1)
			ctx := seconds(t, 20)
			on := k.Stream()
			go func() { result <- freed(ctx, k.GPU, 40*mib, on) }()
			if !k.pooled() || what != "of its stream" { // the driver gives it out, in order with its stream
				within.Eventually(t, "it waits", heapOf(k.GPU).Reclaiming)
				require.Empty(t, result, "it did not wait for work "+what)
			}
			open()
			within.Seconds(t, "the allocation", func() error { return <-result })
			require.NoError(t, on.Synchronize(background))
			require.NoError(t, s.Synchronize(background))
		}
	})
}

// An allocation waits as long as memory is freed now and then, also memory of others that the program counts
// ([device.WaitCounter]), and no longer.
func TestAllocateWaitsWhileCountedMemoryIsFreed(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	limited(t, g, func(l *cudaalloc.Limits) { l.Waiting = mib })
	synctest.Test(t, func(t *testing.T) { // its clock goes on while all wait
		allocation := func() <-chan error {
			result := make(chan error, 1)
			go func() { _, err := g.Allocate(background, 0, nil); result <- err }()
			return result
		}
		g.CountWaiting(10 * mib)
		result := allocation()
		for range 9 {
			require.Empty(t, result)
			time.Sleep(1500 * time.Millisecond)
			g.CountWaiting(-mib)
		}
		assert.NoError(t, <-result)
		g.CountWaiting(mib)
		assert.ErrorIs(t, <-allocation(), cudaalloc.OutOfMemory, "nothing is freed")
		g.CountWaiting(-2 * mib)
	})
}

// Memory that is allocated, used and freed in a loop is used again, and the caller waits where the
// GPU does not keep up: neither the held memory nor the number of allocations grows.
func TestBusyGPUHoldsBoundedMemory(t *testing.T) {
	const bound, rounds = 100 * mib, 500
	eachKind(t, cudasim.Options{Delay: 200 * time.Microsecond, NoPoison: true}, func(t *testing.T, k kind) {
		limited(t, k.GPU, func(l *cudaalloc.Limits) { l.Waiting = 64 * mib })
		s := k.Stream()
		k.M.Sim.ResetCounters()
		within.Limit(t, 2*time.Minute, "the rounds", func() error {
			for i := range rounds {
				if err := freed(background, k.GPU, mib, s); err != nil {
					return err
				}
				if _, held := k.usage(); i%50 == 49 && held > bound {
					return fmt.Errorf("%d bytes are held after %d rounds", held, i+1)
				}
			}
			return s.Synchronize(background)
		})
		use, _ := k.usage()
		assert.Less(t, use.Peak, int64(bound))
		if !k.pooled() { // whose allocations are cheap
			assert.Less(t, k.M.Sim.Calls(k.made), rounds/4, "allocations of the driver")
		}
	})
}

// Several allocations wait for memory, one of them for more than will be freed: it does not block
// the smaller ones.
func TestLargeAllocationHoldsUpNoSmallOnes(t *testing.T) {
	eachKind(t, small, func(t *testing.T, k kind) {
		if k.unlimited() {
			t.Skip("simulated managed memory has no limit")
		}
		kept, freed, s := k.Ready(30*mib), k.Ready(25*mib), k.Stream()
		returns := make(chan struct{})
		k.Own().AfterWork(func() { <-returns }) // as long as it has not returned, there is something to wait for
		allocate := func(ctx context.Context, size int64) error {
			mem, err := k.Allocate(ctx, size, nil)
			if err != nil {
				return err
			}
			return errors.Join(k.Legacy().Synchronize(background), mem.FreeAfter(nil))
		}
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		large, small := make(chan error, 1), make(chan error, 1)
		go func() { large <- allocate(ctx, 50*mib) }()
		within.Eventually(t, "the large one gives back", heapOf(k.GPU).Reclaiming)
		go func() { small <- allocate(background, 15*mib) }()
		refused := k.M.Sim.Report().FailedCalls
		within.Eventually(t, "both are refused", func() bool { return k.M.Sim.Report().FailedCalls > refused+20 })
		require.NoError(t, freed.Free(s))
		select {
		case err := <-small:
			assert.NoError(t, err)
			cancel()
			assert.ErrorIs(t, <-large, context.Canceled)
		case err := <-large:
			t.Errorf("the large one ended first: %v", err)
			<-small
		}
		close(returns)
		require.NoError(t, kept.FreeAfter(nil))
	})
}
