package cudaalloc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A source that the CPU cannot read is an error, in the first page as well, and staging memory is given
// back. The same holds for copies that the CPU makes alone.
func TestUploadOfMemoryThatCannotBeRead(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 6 * mib
	s, own := memoryOn(t, gpu, size)
	src := make([]byte, 5*mib)
	defer runtime.KeepAlive(src)
	for name, bad := range map[string]device.Ptr{"no address": 0, "in the first page": 8, "of the device": own.Ptr()} {
		for _, dev := range []*cudaalloc.Device{gpu, gpu.Pinned()} {
			t.Run(fmt.Sprint(name, ", to ", dev.ID()), func(t *testing.T) {
				to, err := dev.Allocate(background, size, s)
				require.NoError(t, err)
				require.NotPanics(t, func() {
					_, err = dev.Upload(background, []device.Range{ // the first is more than one copy
						{Dst: to.Ptr(), Src: pointer(src), Size: 5 * mib}, {Dst: to.Ptr() + 5*mib, Src: bad, Size: 100},
					}, s)
				})
				assert.ErrorContains(t, err, "cannot be accessed")
				require.NoError(t, to.Free(s))
				nothingStaged(t, gpu)
			})
		}
	}
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// The CPU writes to page-locked memory, which a reset of the primary context unmaps, by itself.
func TestResetWhileTheCPUCopies(t *testing.T) {
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
				mem, err := gpu.Pinned().Allocate(background, 8*mib, s)
				if err != nil {
					return
				}
				for !gpu.Gone() {
					if e, err := gpu.Pinned().Upload(background, []device.Range{{Dst: mem.Ptr(), Src: pointer(src), Size: 8 * mib}}, s); err == nil {
						_ = e.Close()
					}
				}
				_ = mem.Free(s)
				_ = s.Close()
			})
		}
		time.Sleep(10 * time.Millisecond)
		m.ResetPrimary(t, 0)
		_, err = cudaalloc.Open(0, m.Driver())
		require.NoError(t, err)
		within.Seconds(t, "the uploads", func() error { uploads.Wait(); return nil })
		within.Eventually(t, "what the old GPU had has ended", func() bool { return gpu.ReadStats().Pinned.Live == 0 && gpu.ReadStats().Waiting == 0 })
	}
}

// uploaded uploads the source, and reports whether nothing failed. Then the memory has the contents
// that the source had.
func uploaded(ctx context.Context, t *testing.T, gpu *cudaalloc.Device, s device.Stream, own device.Memory, src, back []byte) bool {
	e, err := gpu.Upload(ctx, []device.Range{{Dst: own.Ptr(), Src: pointer(src), Size: int64(len(src))}}, s)
	if err != nil {
		assert.Nil(t, e)
		return false
	}
	want := bytes.Clone(src)
	clear(src)
	err = errors.Join(e.Synchronize(background), e.Close())
	if err == nil {
		err = gpu.Copy([]device.Range{{Dst: pointer(back), Src: own.Ptr(), Size: int64(len(back))}}, s)
	}
	if err != nil || s.Synchronize(background) != nil {
		return false
	}
	assert.True(t, bytes.Equal(want, back), "%d bytes", len(back))
	return true
}

// Goroutines upload on shared streams, while contexts end and calls of the driver fail. What an
// upload reported as done is there, and staging memory is given back exactly once.
func TestUploadsThatFailAndAreCancelled(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Delay: 20 * time.Microsecond, Random: true})
	gpu := m.GPUs[0]
	const goroutines, rounds, largest = 6, 25, 20 * mib
	var streams []device.Stream
	for range 2 {
		s, err := gpu.NewStream()
		require.NoError(t, err)
		streams = append(streams, s)
	}
	end := cudaalloc.BetweenCopies(gpu, runtime.Gosched)
	defer end()
	var good, bad atomic.Int32
	var all sync.WaitGroup
	for g := range goroutines {
		random := rand.New(rand.NewPCG(uint64(g), 7))
		src, back := make([]byte, largest), goPinned(t, largest)
		all.Go(func() {
			for range rounds {
				s := streams[random.IntN(len(streams))]
				size := 1 + random.Int64N(largest)
				if random.IntN(3) > 0 {
					size = 1 + random.Int64N(100_000)
				}
				own, err := gpu.Allocate(background, size, s)
				if err != nil {
					continue
				}
				for i := int64(0); i < size; i += 1000 {
					src[i] = byte(random.Uint32())
				}
				ctx, cancel := context.WithCancel(background)
				stop := time.AfterFunc(time.Duration(random.Int64N(int64(20*time.Millisecond))), cancel)
				if random.IntN(3) == 0 {
					m.Sim.FailTimes([]string{"cuMemcpyAsync", "cuEventRecord", "cuEventCreate", "cuMemHostAlloc", "cuEventQuery", ""}[random.IntN(6)], 1+random.IntN(6), 1+random.IntN(2), unknownError)
				}
				if uploaded(ctx, t, gpu, s, own, src[:size], back[:size]) {
					good.Add(1)
				} else {
					bad.Add(1)
				}
				stop.Stop()
				cancel()
				_ = own.Free(s)
			}
			runtime.KeepAlive(src)
		})
	}
	within.Limit(t, time.Minute, "the uploads", func() error { all.Wait(); return nil })
	m.Sim.Fail("", 0, 0)
	t.Log(good.Load(), "uploads,", bad.Load(), "that failed or were cancelled")
	assert.Positive(t, good.Load())
	assert.Positive(t, bad.Load())
	for _, s := range streams {
		require.NoError(t, s.Close())
	}
	nothingStaged(t, gpu)
}
