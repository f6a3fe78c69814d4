package gpu_test

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
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// upload uploads b, and returns on errors, too.
func upload(ctx context.Context, d *cudaalloc.Device, dst device.Ptr, b []byte, s device.Stream) (device.Event, error) {
	defer runtime.KeepAlive(b)
	return d.Upload(ctx, cudatest.Range(dst, cudatest.Pointer(b), int64(len(b))), s)
}

// A reset of the primary context unmaps page-locked memory while uploads write to it, through staging memory or
// by the CPU alone: that is an error of theirs, and not the end of the process.
func TestResetWhileUploading(t *testing.T) {
	src := make([]byte, 8*mib)
	for what, of := range map[string]func(*cudaalloc.Device) *cudaalloc.Device{
		"staging": (*cudaalloc.Device).Own, "the CPU": (*cudaalloc.Device).Pinned,
	} {
		t.Run(what, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{})
			for range 3 {
				gpu, err := cudaalloc.Open(0, m.Driver())
				require.NoError(t, err)
				dev := of(gpu)
				var uploads sync.WaitGroup
				var begun atomic.Int32
				for range 3 {
					s, err := dev.NewStream()
					require.NoError(t, err)
					mem, err := dev.Allocate(background, 8*mib, s)
					require.NoError(t, err)
					uploads.Go(func() {
						for !gpu.Gone() {
							if e, err := upload(background, dev, mem.Ptr(), src, s); err == nil {
								begun.Add(1)
								_ = e.Close()
							}
						}
						_ = mem.Free(s)
						_ = s.Close()
					})
				}
				within.Eventually(t, "uploads", func() bool { return begun.Load() > 3 })
				m.ResetPrimary(t, 0)
				again, err := cudaalloc.Open(0, m.Driver())
				require.NoError(t, err)
				within.Seconds(t, "the uploads", func() error { uploads.Wait(); return nil })
				within.Eventually(t, "what the old GPU had has ended", func() bool {
					old := gpu.ReadStats()
					return old.Device.Live+old.Pinned.Live+old.Waiting == 0
				})
				assert.Zero(t, again.ReadStats())
			}
		})
	}
}

// Staged memory that is not copied yet is bounded: Upload waits for the oldest chunk before it
// fills its memory again.
func TestUploadWaitsForRoom(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const chunk, chunks = 16 << 20, 6 // four may be in flight
	content := make([]byte, chunks*chunk)
	for i := range chunks {
		content[i*chunk] = byte(i + 1)
	}
	s := g.Stream()
	own := g.Memory(int64(len(content)), s)
	g.M.Sim.Pause()
	done := make(chan device.Event, 1)
	go func() {
		e, err := upload(background, g.Device, own.Ptr(), content, s)
		assert.NoError(t, err)
		done <- e
	}()
	within.Eventually(t, "it waits", func() bool { return g.M.Sim.Calls("cuEventQuery") >= 100 || len(done) > 0 })
	assert.Empty(t, done, "it has not waited for room, although nothing was copied")
	assert.LessOrEqual(t, g.ReadStats().Pinned.Live, int64(64<<20))
	g.M.Sim.Resume()
	e := <-done
	require.NotNil(t, e)
	require.NoError(t, e.Close())
	for i := range chunks {
		g.Holds(byte(i+1), own.Ptr()+device.Ptr(i*chunk), 1, s)
	}
}

// An upload that stops in the middle of its staging holds up no other one, on its own stream or on
// another one, and what it has staged is copied meanwhile.
func TestSmallUploadDoesNotWaitForALargeOne(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const large, small = 40 << 20, 1 << 10 // in three pieces of staging memory
	one, other := g.Stream(), g.Stream()
	own, own2 := g.Memory(large, one), g.Memory(2*small, other)
	content, little := make([]byte, large), make([]byte, small)
	for i := range content {
		content[i] = byte(i >> 16)
	}
	cudatest.Fill(little, 7)

	stopped, proceed := make(chan struct{}), make(chan struct{})
	var pieces atomic.Int32
	end := betweenCopies(g, func() {
		if pieces.Add(1) == 2 {
			close(stopped)
			<-proceed
		}
	})
	done := make(chan device.Event, 1)
	go func() {
		e, err := upload(background, g.Device, own.Ptr(), content, one)
		assert.NoError(t, err)
		done <- e
	}()
	<-stopped
	assert.Equal(t, 2, g.M.Sim.Calls("cuMemcpyAsync"), "the GPU copies one part while the next one is staged")
	within.Seconds(t, "the small uploads", func() error {
		for i, s := range []device.Stream{other, one} {
			e, err := upload(background, g.Device, own2.Ptr()+device.Ptr(i*small), little, s)
			if err != nil {
				return err
			}
			if err := errors.Join(e.Synchronize(background), e.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	assert.Empty(t, done, "the large one has not returned")
	close(proceed)
	e := <-done
	end()
	require.NotNil(t, e)
	assert.Equal(t, int32(10+2), pieces.Load())
	require.NoError(t, other.WaitEvent(e))
	require.NoError(t, e.Close())
	assert.True(t, bytes.Equal(content, g.Bytes(own.Ptr(), large, other)))
	g.Holds(7, own2.Ptr(), 2*small, other)
	require.NoError(t, own.Free(other))
	require.NoError(t, own2.Free(other))
}

// The event of an upload is behind all of it, page-locked and plain ranges: a consumer on another stream needs
// nothing else.
func TestGPUEventOfAnUploadCoversIt(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		g := m.On(t, m.GPUs[0])
		const size = 4096
		producer, consumer := g.Stream(), g.Stream()
		locked := m.On(t, g.Pinned()).Ready(size)
		cudatest.Fill(cudatest.At(locked.Ptr(), size), 2)
		m.HostWrite(locked.Ptr(), size)
		plain := make([]byte, size)
		cudatest.Fill(plain, 1)
		own := g.Memory(3*size, producer)
		g.Fill(own.Ptr()+2*size, 3, size, producer)
		e, err := g.Upload(background, append(cudatest.Range(own.Ptr(), cudatest.Pointer(plain), size),
			cudatest.Range(own.Ptr()+size, locked.Ptr(), size)...), producer)
		require.NoError(t, err)
		require.NoError(t, consumer.WaitEvent(e))
		require.NoError(t, e.Synchronize(background))
		cudatest.Fill(cudatest.At(locked.Ptr(), size), 9)
		m.HostWrite(locked.Ptr(), size)
		for i := range 3 {
			g.Holds(byte(i+1), own.Ptr()+device.Ptr(i*size), size, consumer)
		}
		require.NoError(t, e.Close())
		require.NoError(t, own.Free(consumer))
	})
}

// The event of an upload that needs no staging is behind it.
func TestGPUEventOfAnUploadWithoutStagingWaits(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	const size = 1000
	s := g.Stream()
	own, locked := g.Memory(size, s), g.M.On(t, g.Pinned()).Ready(size)
	open := g.M.Hold(t, s)
	e, err := g.Upload(background, cudatest.Range(own.Ptr(), locked.Ptr(), size), s)
	require.NoError(t, err)
	require.NoError(t, g.Legacy().Synchronize(background))
	assert.False(t, g.Done(e.(*cudaalloc.Event)))
	open()
	require.NoError(t, e.Synchronize(background))
	require.NoError(t, e.Close())
	require.NoError(t, locked.FreeAfter(nil))
}

// Small ranges of page-locked memory are read at once only where no work can still write them: on a
// stream for copies that waits for nothing. Elsewhere the upload sees the work before it.
func TestSmallPageLockedRangesAreReadInTurn(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const size = 100
	writer := g.Stream()
	locked, managed, own := g.M.On(t, g.Pinned()).Ready(2*size), g.M.On(t, g.Managed()).Ready(2*size), g.Ready(2*size)
	last := locked.Ptr() + 2*size - 1
	one := cudatest.Range(last, own.Ptr(), 1)
	for name, c := range map[string]struct {
		make   func() (device.Stream, error)
		before func(device.Stream) error
		from   device.Memory
		copies int
	}{
		"on a stream for copies":  {g.CopyStream, nil, locked, 1},
		"on any other stream":     {g.NewStream, nil, locked, 2},
		"managed memory":          {g.CopyStream, nil, managed, 2},
		"after a wait":            {g.CopyStream, func(s device.Stream) error { return s.WaitEvent(g.Event(writer)) }, locked, 2},
		"after a copy":            {g.CopyStream, func(s device.Stream) error { return g.Copy(one, s) }, locked, 2},
		"after a fill of it":      {g.CopyStream, func(s device.Stream) error { return g.Pinned().Memset(last, 1, 1, s) }, locked, 2},
		"after a fill of another": {g.CopyStream, func(s device.Stream) error { return g.Memset(own.Ptr(), 1, 1, s) }, locked, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := c.make()
			require.NoError(t, err)
			if c.before != nil {
				require.NoError(t, c.before(s))
			}
			before := g.M.Sim.Calls("cuMemcpyAsync")
			e, err := g.Upload(background, append( // neighbours at their destinations only
				cudatest.Range(own.Ptr(), c.from.Ptr()+size, size), cudatest.Range(own.Ptr()+size, c.from.Ptr(), size)...), s)
			require.NoError(t, err)
			assert.Equal(t, c.copies, g.M.Sim.Calls("cuMemcpyAsync")-before)
			require.NoError(t, e.Synchronize(background))
			require.NoError(t, e.Close())
			require.NoError(t, s.Close())
		})
	}
}

// An upload to memory of the host, which the CPU copies, is made in its turn on the stream.
func TestUploadToTheHostWaitsForItsStream(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	g := m.On(t, m.GPUs[0].Pinned())
	const size = 1000
	s := g.Stream()
	locked := g.Memory(size, s)
	src := make([]byte, size)
	cudatest.Fill(src, 7)
	open := m.Hold(t, s)
	g.Fill(locked.Ptr(), 0xdd, size, s)
	done := make(chan device.Event, 1)
	m.Sim.ResetCounters()
	go func() {
		e, err := upload(background, g.Device, locked.Ptr(), src, s)
		assert.NoError(t, err)
		done <- e
	}()
	within.Eventually(t, "it waits", func() bool { return m.Sim.Calls("cuEventQuery") >= 5 || len(done) > 0 })
	assert.Empty(t, done, "it has not waited for the work before it")
	open()
	e := <-done
	require.NotNil(t, e)
	require.NoError(t, e.Synchronize(background))
	require.NoError(t, e.Close())
	m.HostRead(locked.Ptr(), size)
	assert.Equal(t, src, cudatest.At(locked.Ptr(), size))
}

// A source that the CPU cannot read is an error, in the first page as well, and staging memory is given
// back. The same holds for copies that the CPU makes alone.
func TestUploadOfMemoryThatCannotBeRead(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.On(t, m.GPUs[0])
	const size = 6 * mib
	s := gpu.Stream()
	src := make([]byte, 5*mib)
	defer runtime.KeepAlive(src)
	for name, bad := range map[string]device.Ptr{
		"no address": 0, "in the first page": 8, "of the device": gpu.Memory(size, s).Ptr(),
	} {
		for _, dev := range []*cudaalloc.Device{gpu.Device, gpu.Pinned()} {
			t.Run(fmt.Sprint(name, ", to ", dev.ID()), func(t *testing.T) {
				to, err := dev.Allocate(background, size, s)
				require.NoError(t, err)
				for _, list := range [][]device.Range{
					cudatest.Range(to.Ptr(), bad, 100),
					append(cudatest.Range(to.Ptr(), cudatest.Pointer(src), 5*mib), cudatest.Range(to.Ptr()+5*mib, bad, 100)...), // after a copy
				} {
					require.NotPanics(t, func() { _, err = dev.Upload(background, list, s) })
					assert.ErrorContains(t, err, "cannot be accessed")
				}
				require.NoError(t, to.Free(s))
				nothingStaged(t, gpu)
			})
		}
	}
}

// uploaded uploads the source, and reports whether nothing failed. Then the memory has the contents
// that the source had.
func uploaded(ctx context.Context, t *testing.T, gpu *cudaalloc.Device, s device.Stream, own device.Memory, src, back []byte) bool {
	e, err := upload(ctx, gpu, own.Ptr(), src, s)
	if err != nil {
		assert.Nil(t, e)
		return false
	}
	want := bytes.Clone(src)
	clear(src)
	err = errors.Join(e.Synchronize(background), e.Close())
	if err == nil {
		err = gpu.Copy(cudatest.Range(cudatest.Pointer(back), own.Ptr(), int64(len(back))), s)
	}
	if err != nil || s.Synchronize(background) != nil {
		return false
	}
	assert.True(t, bytes.Equal(want, back), "%d bytes", len(back))
	return true
}

// Goroutines upload on shared streams, while contexts end and calls of the driver fail. What an
// upload reported as done is there, and staging memory is freed exactly once.
func TestUploadsThatFailAndAreCancelled(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{Delay: 20 * time.Microsecond, Random: true})
	const goroutines, rounds, largest = 6, 15, 20 * mib
	functions := []string{"cuMemcpyAsync", "cuEventRecord", "cuEventCreate", "cuMemHostAlloc", "cuEventQuery", ""}
	streams := []device.Stream{g.Stream(), g.Stream()}
	end := betweenCopies(g, runtime.Gosched)
	defer end()
	var good, bad atomic.Int32
	var all sync.WaitGroup
	for i := range goroutines {
		random := rand.New(rand.NewPCG(uint64(i), 7))
		src, back := make([]byte, largest), goPinned(t, largest)
		all.Go(func() {
			for range rounds {
				s := streams[random.IntN(len(streams))]
				size := 1 + random.Int64N(largest)
				if random.IntN(3) > 0 {
					size = 1 + random.Int64N(100_000)
				}
				own, err := g.Allocate(background, size, s)
				if err != nil {
					continue
				}
				for i := int64(0); i < size; i += 1000 {
					src[i] = byte(random.Uint32())
				}
				ctx, cancel := context.WithCancel(background)
				stop := time.AfterFunc(time.Duration(random.Int64N(int64(20*time.Millisecond))), cancel)
				if random.IntN(3) == 0 {
					g.M.Sim.FailTimes(functions[random.IntN(len(functions))], 1+random.IntN(6), 1+random.IntN(2), unknownError)
				}
				if uploaded(ctx, t, g.Device, s, own, src[:size], back[:size]) {
					good.Add(1)
				} else {
					bad.Add(1)
				}
				stop.Stop()
				cancel()
				_ = own.Free(s)
			}
		})
	}
	within.Limit(t, time.Minute, "the uploads", func() error { all.Wait(); return nil })
	g.M.Sim.Fail("", 0, 0)
	assert.Positive(t, good.Load())
	assert.Positive(t, bad.Load())
	nothingStaged(t, g)
}

// goPinned is Go memory that copies may write to until the test ends.
func goPinned(t *testing.T, n int) []byte {
	b, pins := make([]byte, n), new(runtime.Pinner)
	pins.Pin(&b[0])
	t.Cleanup(pins.Unpin)
	return b
}

// betweenCopies has f called by each upload to the GPU after each copy out of staging memory that it
// enqueues, until end is called. No upload may run during the two calls.
func betweenCopies(g cudatest.GPU, f func()) (end func()) {
	s := &core.Of(g.Device).Staging
	s.BetweenCopies(f)
	return func() { s.BetweenCopies(nil) }
}
