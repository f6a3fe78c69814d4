package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// An allocation waits for memory that pending work uses until its context ends; the error then has
// the size of that memory.
func TestOutOfMemorySaysWhatWaits(t *testing.T) {
	const piece, pieces = 8 * mib, 7
	eachKind(t, cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}, func(t *testing.T, k *kind) {
		if k.made == "cuMemAllocFromPoolAsync" || k.made == "cuMemAllocManaged" {
			t.Skip("a simulated pool gives out at once what is freed to it; managed memory has no limit")
		}
		limited(t, k.Device, func(l *cudaalloc.Limits) { l.Waiting = 1 << 40 })
		s := k.stream(t)
		var all []device.Memory
		for range pieces {
			all = append(all, k.allocated(t, piece))
		}
		open, err := hold(s)
		require.NoError(t, err)
		for _, mem := range all {
			require.NoError(t, k.Memset(mem.Ptr(), 1, piece, s))
			require.NoError(t, mem.Free(s))
		}
		says := func(err error) {
			t.Helper()
			assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
			assert.ErrorContains(t, err, fmt.Sprint(pieces*piece))
			assert.ErrorContains(t, err, "pending work")
		}
		allocate := func(ctx context.Context) error {
			mem, err := k.Allocate(ctx, 2*piece, s)
			if err != nil {
				return err
			}
			return mem.Free(s)
		}
		for range 2 {
			within.Context(t, "Allocate", allocate)
		}
		within.Seconds(t, "Allocate with a deadline", func() error {
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			err = allocate(ctx)
			return nil
		})
		says(err)
		within.Limit(t, 30*time.Second, "Allocate without a deadline", func() error { err = allocate(background); return nil })
		says(err)
		open()
		within.Seconds(t, "Allocate afterwards", func() error { return allocate(background) })
		within.Seconds(t, "the work", func() error { return s.Synchronize(background) })
		within.Eventually(t, "everything has ended", func() bool { return k.usage().Live == 0 })
	})
}

// A waiting allocation gets memory when the work that uses it is done.
func TestAllocateWaitsForPendingWork(t *testing.T) {
	eachKind(t, cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}, func(t *testing.T, k *kind) {
		if k.made == "cuMemAllocManaged" {
			t.Skip("simulated managed memory has no limit")
		}
		mem := k.allocated(t, 40*mib)
		stranger := k.m.Stranger(t, k.Own())
		open := stranger.Hold(t)
		require.NoError(t, stranger.Memset(mem.Ptr(), 1, 40*mib))
		k.AfterWork(func() { assert.NoError(t, mem.FreeAfter(nil)) })
		s := k.stream(t)
		result := make(chan error, 1)
		ctx := seconds(t, 20)
		go func() { result <- freed(ctx, k.Device, 40*mib, s) }()
		select {
		case err := <-result:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		open()
		within.Seconds(t, "the allocation", func() error { return <-result })
		require.NoError(t, s.Synchronize(background))
	})
}

// Memory that is allocated, used and freed in a loop is used again, and the caller waits where the
// GPU does not keep up: neither the held memory nor the number of allocations grows.
func TestBusyGPUHoldsBoundedMemory(t *testing.T) {
	rounds := 5000
	if testing.Short() {
		rounds = 1500
	}
	eachKind(t, cudasim.Options{Delay: 200 * time.Microsecond, NoPoison: true}, func(t *testing.T, k *kind) {
		const bound = 300 * mib
		s := k.stream(t)
		k.m.Sim.ResetCounters()
		most := int64(0)
		within.Limit(t, 2*time.Minute, "the rounds", func() error {
			for i := range rounds {
				if err := freed(background, k.Device, mib, s); err != nil {
					return err
				}
				if i%50 == 49 {
					if most = max(most, k.bytes()); most > bound {
						return fmt.Errorf("%d bytes are held after %d rounds", most, i+1)
					}
				}
			}
			return s.Synchronize(background)
		})
		assert.Less(t, k.usage().Peak, int64(bound))
		if k.made != "cuMemAllocFromPoolAsync" { // which is cheap
			assert.Less(t, k.m.Sim.Calls(k.made), rounds/4, "allocations of the driver")
		}
		t.Logf("%d rounds held %d MiB, in %d allocations of the driver", rounds, most/mib, k.m.Sim.Calls(k.made))
	})
}

// Beside a stream that is stuck, the same loop goes on.
func TestStuckStreamLeavesTheLoopAlone(t *testing.T) {
	const rounds = 500
	eachKind(t, cudasim.Options{NoPoison: true}, func(t *testing.T, k *kind) {
		stranger := k.m.Stranger(t, k.Own())
		open := stranger.Hold(t)
		k.AfterWork(func() {})
		s := k.stream(t)
		within.Limit(t, time.Minute, "the rounds", func() error {
			for range rounds {
				if err := freed(background, k.Device, mib, s); err != nil {
					return err
				}
			}
			return s.Synchronize(background)
		})
		assert.Less(t, k.usage().Peak, int64(300*mib))
		open()
	})
}

// Several allocations wait for memory, one of them for more than will be freed: it does not block
// the smaller ones.
func TestLargeAllocationHoldsUpNoSmallOnes(t *testing.T) {
	eachKind(t, cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}, func(t *testing.T, k *kind) {
		if k.made == "cuMemAllocManaged" {
			t.Skip("simulated managed memory has no limit")
		}
		kept, freed, s := k.allocated(t, 30*mib), k.allocated(t, 25*mib), k.stream(t)
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
		within.Eventually(t, "the large one gives back", heapOf(k.Own()).Reclaiming)
		go func() { small <- allocate(background, 15*mib) }()
		refused := k.m.Sim.Report().FailedCalls
		within.Eventually(t, "both are refused", func() bool { return k.m.Sim.Report().FailedCalls > refused+20 })
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
