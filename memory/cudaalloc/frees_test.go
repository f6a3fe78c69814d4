package cudaalloc_test

import (
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

// When memory is freed: after the work that uses it, even if the driver fails meanwhile or other
// work is stuck.

// A context that cannot be synchronised now, because a stream of it is being captured or for no
// known reason, is synchronised later: frees that wait for its work stay pending.
func TestFreesWaitWhileTheContextCannotBeSynchronised(t *testing.T) {
	const size, failures = 1 << 16, 10
	for _, code := range []int{900, 901, 906, 999} { // capture unsupported, invalidated, implicit; unknown
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
				mem := k.allocated(t, size)
				other := k.stream(t)
				stranger := k.m.Stranger(t, k.Own())
				open := stranger.Hold(t)
				require.NoError(t, stranger.Memset(mem.Ptr(), 0xdd, size))
				k.m.Sim.FailTimes("cuCtxSynchronize", 1, failures, code)
				t.Cleanup(func() { k.m.Sim.Fail("", 0, 0) })
				ended := make(chan error, 1)
				k.AfterWork(func() { ended <- mem.FreeAfter(nil) })

				// Time to fail ten times. A context that is not asked meanwhile fails afterwards.
				for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline) && len(ended) == 0; {
					time.Sleep(time.Millisecond)
				}
				require.Empty(t, ended, "it ended while its work is pending")
				require.GreaterOrEqual(t, k.usage().Live, int64(size))
				var fresh []device.Memory
				for range 8 {
					m, err := k.Allocate(seconds(t, 5), size, other)
					require.NoError(t, err)
					assert.NotEqual(t, mem.Ptr(), m.Ptr(), "given out while its work is pending")
					require.NoError(t, k.Memset(m.Ptr(), 1, size, other))
					fresh = append(fresh, m)
				}
				open()
				within.Limit(t, 15*time.Second, "the end of what waited", func() error { return <-ended })
				for _, m := range fresh {
					require.NoError(t, m.Free(other))
				}
				require.NoError(t, k.Flush(seconds(t, 15)))
				assert.Zero(t, k.ReadStats().Lost)
			})
		})
	}
}

// Memory that is freed on a stream is not given out again until the work on the stream is done.
func TestGPUFreeWaitsForItsStream(t *testing.T) {
	const size = 1 << 16
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		mem := k.allocated(t, size)
		s, other := k.stream(t), k.stream(t)
		open := k.m.Hold(t, s)
		require.NoError(t, k.Memset(mem.Ptr(), 0xdd, size, s))
		require.NoError(t, mem.Free(s))
		var fresh []device.Memory
		for range 8 {
			m, err := k.Allocate(seconds(t, 5), size, other)
			require.NoError(t, err)
			assert.NotEqual(t, mem.Ptr(), m.Ptr(), "given out while its work is pending")
			require.NoError(t, k.Memset(m.Ptr(), 1, size, other))
			fresh = append(fresh, m)
		}
		open()
		for _, m := range fresh {
			require.NoError(t, m.Free(other))
		}
		require.NoError(t, s.Synchronize(background))
		require.NoError(t, k.Flush(seconds(t, 15)))
		assert.Zero(t, k.usage().Live)
	})
}

// Flush and Trim wait, too, for a context that cannot be synchronised now.
func TestFlushWaitsForAContextThatCannotBeSynchronised(t *testing.T) {
	const size = 1 << 16
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		for name, flush := range map[string]func() error{
			"Flush": func() error { return k.Flush(seconds(t, 15)) },
			"Trim":  func() error { return k.Trim(seconds(t, 15)) },
		} {
			mem := k.allocated(t, size)
			stranger := k.m.Stranger(t, k.Own())
			require.NoError(t, stranger.Memset(mem.Ptr(), 0xdd, size))
			k.m.Sim.FailTimes("cuCtxSynchronize", 1, 10, 900)
			k.AfterWork(func() { assert.NoError(t, mem.FreeAfter(nil)) })
			within.Limit(t, 20*time.Second, name, flush)
			k.m.Sim.Fail("", 0, 0)
			require.NoError(t, k.Flush(seconds(t, 15)))
			assert.Zero(t, k.usage().Live, name)
			assert.Zero(t, k.ReadStats().Lost, name)
		}
	})
}

// A context that is gone runs no work: pending frees end, those that the driver refuses are
// counted, and the error of Flush has the cause.
func TestEndOfTheContextEndsWhatWaits(t *testing.T) {
	const size = 1 << 16
	sim := cudasim.Load(t, cudasim.Options{})
	sim.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority", "cuMemHostAlloc",
		"cuMemAllocManaged", "cuEventCreate", "cuMemAllocFromPoolAsync")
	gpu, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
	require.NoError(t, err)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	other, err := gpu.NewStream()
	require.NoError(t, err)
	victim, err := gpu.Allocate(background, size, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	open, err := cudaalloc.Hold(s)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(victim.Ptr(), 1, size, s))
	require.NoError(t, victim.Free(other), "a mistake of the program, which ends the context")
	require.NoError(t, other.Synchronize(background))

	ended := make(chan error, 2)
	for _, d := range []*cudaalloc.Device{gpu.Pinned(), gpu.Managed()} {
		mem, err := d.Allocate(background, size, nil)
		require.NoError(t, err)
		gpu.AfterWork(func() { ended <- mem.FreeAfter(nil) })
	}
	flushed := make(chan error, 1)
	ctx := seconds(t, 10)
	go func() { flushed <- gpu.Flush(ctx) }()
	time.Sleep(10 * time.Millisecond)
	open()
	for range 2 {
		within.Seconds(t, "the end of what waited", func() error { <-ended; return nil })
	}
	within.Seconds(t, "Flush", func() error { err = <-flushed; return nil })
	require.ErrorIs(t, s.Synchronize(background), cudaalloc.IllegalAddress, "the context is gone")
	assert.ErrorIs(t, err, cudaalloc.IllegalAddress)
	within.Seconds(t, "Trim", func() error { _ = gpu.Trim(seconds(t, 10)); return nil })
	within.Eventually(t, "nothing waits", func() bool { return gpu.ReadStats().Waiting == 0 })
	if live := sim.Report().Live; live.HostBytes > 0 || live.ManagedBytes > 0 {
		assert.Positive(t, gpu.ReadStats().Lost, "the driver refused to free it")
	}
	sim.ForgetViolations() // the mistake
}

// A stream that is stuck holds back memory that unknown work may use on it, and no memory that is
// known to be used elsewhere.
func TestGPUStuckStrangerHoldsUpNoFrees(t *testing.T) {
	eachKind(t, cudasim.Options{}, func(t *testing.T, k *kind) {
		s := k.stream(t)
		stranger := k.m.Stranger(t, k.Own())
		open := stranger.Hold(t)
		waiting := make(chan struct{})
		k.AfterWork(func() { close(waiting) })
		for range 20 {
			within.Seconds(t, "a round", func() error { return freed(background, k.Device, mib, s) })
		}
		e, err := k.NewEvent()
		require.NoError(t, err)
		mem, err := k.Allocate(background, mib, s)
		require.NoError(t, err)
		require.NoError(t, s.Record(e))
		require.NoError(t, mem.FreeAfter(e))
		require.NoError(t, e.Close())
		within.Seconds(t, "the work", func() error { return s.Synchronize(background) })
		within.Eventually(t, "what was freed has ended", func() bool { return k.usage().Live == 0 })
		assert.LessOrEqual(t, k.usage().Peak, int64(64*mib))
		select {
		case <-waiting:
			t.Error("a function ran before the stranger's work was done")
		default:
		}
		open()
		within.Seconds(t, "the function", func() error { <-waiting; return nil })
	})
}

// A function may need memory that other functions free.
func TestFunctionMayAllocateWhatOthersFree(t *testing.T) {
	eachKind(t, cudasim.Options{Memory: 64 * mib, HostMemory: 64 * mib}, func(t *testing.T, k *kind) {
		stranger := k.m.Stranger(t, k.Own())
		s := k.stream(t)
		mem := k.allocated(t, 40*mib)
		open := stranger.Hold(t)
		results := make(chan error, 2)
		ctx := seconds(t, 10)
		allocate := func() {
			err := freed(ctx, k.Device, 40*mib, s)
			if err == nil {
				err = s.Synchronize(background)
			}
			results <- err
		}
		k.AfterWork(allocate)
		k.AfterWork(func() { assert.NoError(t, mem.FreeAfter(nil)) })
		k.AfterWork(allocate)
		open()
		for range 2 {
			within.Limit(t, 12*time.Second, "a function that allocates", func() error { return <-results })
		}
	})
}
