package gpu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
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

// A reset of the primary context unmaps page-locked memory while uploads write to it: that is
// an error of theirs, and not the end of the process.
func TestResetWhileUploading(t *testing.T) {
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
				mem, err := gpu.Allocate(background, 8*mib, s)
				if err != nil {
					return
				}
				for !gpu.Gone() {
					if e, err := gpu.Upload(background, []device.Range{{Dst: mem.Ptr(), Src: cudatest.Pointer(src), Size: 8 * mib}}, s); err == nil {
						_ = e.Close()
					}
				}
				_ = mem.Free(s)
				_ = s.Close()
			})
		}
		time.Sleep(10 * time.Millisecond)
		m.ResetPrimary(t, 0)
		again, err := cudaalloc.Open(0, m.Driver())
		require.NoError(t, err)
		within.Seconds(t, "the uploads", func() error { uploads.Wait(); return nil })
		within.Eventually(t, "what the old GPU had has ended", func() bool { return gpu.ReadStats().Device.Live == 0 && gpu.ReadStats().Waiting == 0 })
		assert.Zero(t, again.ReadStats())
	}
}

// Staged memory that is not copied yet is bounded: Upload waits for the oldest chunk before it
// fills its memory again.
func TestUploadWaitsForRoom(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const chunk, chunks = 16 << 20, 6 // four may be in flight
	content := make([]byte, chunks*chunk)
	defer runtime.KeepAlive(content)
	for i := range chunks {
		content[i*chunk] = byte(i + 1)
	}
	s, err := gpu.NewStream()
	require.NoError(t, err)
	own, err := gpu.Allocate(background, int64(len(content)), s)
	require.NoError(t, err)
	m.Sim.Pause()
	done := make(chan device.Event, 1)
	go func() {
		e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(content), Size: int64(len(content))}}, s)
		assert.NoError(t, err)
		done <- e
	}()
	for m.Sim.Calls("cuEventQuery") < 100 && len(done) == 0 {
		runtime.Gosched()
	}
	assert.Empty(t, done, "it has not waited for room, although nothing was copied")
	m.Sim.Resume()
	e := <-done
	require.NotNil(t, e)
	require.NoError(t, e.Close())

	back := goPinned(t, chunks)
	var list []device.Range
	for i := range back {
		list = append(list, device.Range{Dst: cudatest.Pointer(back[i:]), Src: own.Ptr() + device.Ptr(i*chunk), Size: 1})
	}
	require.NoError(t, gpu.Copy(list, s))
	require.NoError(t, s.Synchronize(background))
	assert.Equal(t, []byte{1, 2, 3, 4, 5, 6}, back)
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// An upload that stops in the middle of its staging holds up no other one, on its own stream or on
// another one, and what it has staged is copied meanwhile.
func TestSmallUploadDoesNotWaitForALargeOne(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const large, small = 40 << 20, 1 << 10 // in three pieces of staging memory
	one, own := memoryOn(t, gpu, large)
	other, own2 := memoryOn(t, gpu, 2*small)
	content, little := make([]byte, large), make([]byte, small)
	for i := range content {
		content[i] = byte(i >> 16)
	}
	cudatest.Fill(little, 7)
	defer runtime.KeepAlive(content)

	stopped, proceed := make(chan struct{}), make(chan struct{})
	var pieces atomic.Int32
	end := betweenCopies(gpu, func() {
		if pieces.Add(1) == 2 {
			close(stopped)
			<-proceed
		}
	})
	done := make(chan device.Event, 1)
	go func() {
		e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(content), Size: large}}, one)
		assert.NoError(t, err)
		done <- e
	}()
	<-stopped
	assert.Equal(t, 2, m.Sim.Calls("cuMemcpyAsync"), "the GPU copies one part while the next one is staged")
	within.Limit(t, 10*time.Second, "the small uploads", func() error {
		for i, s := range []device.Stream{other, one} {
			e, err := gpu.Upload(background, []device.Range{{Dst: own2.Ptr() + device.Ptr(i*small), Src: cudatest.Pointer(little), Size: small}}, s)
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
	back := goPinned(t, large+2*small)
	require.NoError(t, gpu.Copy([]device.Range{
		{Dst: cudatest.Pointer(back), Src: own.Ptr(), Size: large}, {Dst: cudatest.Pointer(back[large:]), Src: own2.Ptr(), Size: 2 * small},
	}, other))
	require.NoError(t, other.Synchronize(background))
	assert.True(t, bytes.Equal(content, back[:large]))
	assert.Equal(t, append(slices.Clone(little), little...), back[large:])
	require.NoError(t, own.Free(other))
	require.NoError(t, own2.Free(other))
	require.NoError(t, one.Close())
	require.NoError(t, other.Close())
}

// Plain memory may be changed when Upload returns, and the next upload does not change the data of
// the previous one, although both are staged in memory of one cache.
func TestGPUUploadsDoNotShareStaging(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		const n, size = 20, 5000
		var streams []device.Stream
		for range 3 {
			s, err := gpu.NewStream()
			require.NoError(t, err)
			streams = append(streams, s)
		}
		var all []device.Memory
		source := make([]byte, size)
		for i := range n {
			s := streams[i%len(streams)]
			own, err := gpu.Allocate(background, size, s)
			require.NoError(t, err)
			cudatest.Fill(source, byte(i))
			e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(source), Size: size}}, s)
			require.NoError(t, err)
			require.NoError(t, e.Close())
			all = append(all, own)
		}
		want, got := make([]byte, size), goPinned(t, size)
		for i, own := range all {
			s := streams[i%len(streams)]
			require.NoError(t, gpu.Copy([]device.Range{{Dst: cudatest.Pointer(got), Src: own.Ptr(), Size: size}}, s))
			require.NoError(t, s.Synchronize(background))
			cudatest.Fill(want, byte(i))
			require.Equal(t, want, got, "upload %d", i)
			require.NoError(t, own.Free(s))
		}
		for _, s := range streams {
			require.NoError(t, s.Close())
		}
	})
}

// The event of an upload is behind all of it: a consumer on another stream needs nothing
// else.
func TestGPUEventOfAnUploadCoversIt(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		const size = 4096
		producer, err := gpu.NewStream()
		require.NoError(t, err)
		consumer, err := gpu.NewStream()
		require.NoError(t, err)
		locked, err := gpu.Pinned().Allocate(background, size, nil)
		require.NoError(t, err)
		cudatest.Fill(cudatest.At(locked.Ptr(), size), 2)
		m.HostWrite(locked.Ptr(), size)
		plain := make([]byte, size)
		cudatest.Fill(plain, 1)
		own, err := gpu.Allocate(background, 3*size, producer)
		require.NoError(t, err)
		require.NoError(t, gpu.Memset(own.Ptr()+2*size, 3, size, producer))
		e, err := gpu.Upload(background, []device.Range{
			{Dst: own.Ptr(), Src: cudatest.Pointer(plain), Size: size}, {Dst: own.Ptr() + size, Src: locked.Ptr(), Size: size},
		}, producer)
		require.NoError(t, err)
		require.NoError(t, consumer.WaitEvent(e))
		require.NoError(t, e.Synchronize(background))
		cudatest.Fill(cudatest.At(locked.Ptr(), size), 9)
		m.HostWrite(locked.Ptr(), size)
		got := goPinned(t, 3*size)
		require.NoError(t, gpu.Copy([]device.Range{{Dst: cudatest.Pointer(got), Src: own.Ptr(), Size: 3 * size}}, consumer))
		require.NoError(t, consumer.Synchronize(background))
		for i := range 3 {
			assert.Equal(t, byte(i+1), got[i*size])
			assert.Equal(t, byte(i+1), got[(i+1)*size-1])
		}
		require.NoError(t, e.Close())
		require.NoError(t, own.Free(consumer))
		require.NoError(t, locked.Free(nil))
		require.NoError(t, producer.Close())
		require.NoError(t, consumer.Close())
	})
}

// The same of an upload that needs no staging.
func TestGPUEventOfAnUploadWithoutStagingWaits(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	s, err := gpu.NewStream()
	require.NoError(t, err)
	locked, err := gpu.Pinned().Allocate(background, size, nil)
	require.NoError(t, err)
	own, err := gpu.Allocate(background, size, s)
	require.NoError(t, err)
	open := m.Hold(t, s)
	e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: locked.Ptr(), Size: size}}, s)
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	done, err := e.Query()
	require.NoError(t, err)
	assert.False(t, done)
	open()
	require.NoError(t, e.Synchronize(background))
	require.NoError(t, e.Close())
	require.NoError(t, locked.FreeAfter(nil))
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// Small ranges of page-locked memory are read at once only where no work can still write them: on a
// stream for copies that waits for nothing. Elsewhere the upload sees the work before it.
func TestSmallPageLockedRangesAreReadInTurn(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 100
	writer, locked := memoryOn(t, gpu.Pinned(), 2*size)
	managed, err := gpu.Managed().Allocate(background, 2*size, nil)
	require.NoError(t, err)
	own, err := gpu.Allocate(background, 2*size, writer)
	require.NoError(t, err)
	require.NoError(t, writer.Synchronize(background))
	last := locked.Ptr() + 2*size - 1
	event := func() device.Event {
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, writer.Record(e))
		return e
	}
	for name, c := range map[string]struct {
		make   func() (device.Stream, error)
		before func(device.Stream) error
		from   device.Memory
		copies int
	}{
		"on a stream for copies":  {gpu.CopyStream, nil, locked, 1},
		"on any other stream":     {gpu.NewStream, nil, locked, 2},
		"managed memory":          {gpu.CopyStream, nil, managed, 2},
		"after a wait":            {gpu.CopyStream, func(s device.Stream) error { e := event(); return errors.Join(s.WaitEvent(e), e.Close()) }, locked, 2},
		"after a copy":            {gpu.CopyStream, func(s device.Stream) error { return gpu.Copy([]device.Range{{Dst: last, Src: own.Ptr(), Size: 1}}, s) }, locked, 2},
		"after a fill of it":      {gpu.CopyStream, func(s device.Stream) error { return gpu.Pinned().Memset(last, 1, 1, s) }, locked, 2},
		"after a fill of another": {gpu.CopyStream, func(s device.Stream) error { return gpu.Memset(own.Ptr(), 1, 1, s) }, locked, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := c.make()
			require.NoError(t, err)
			if c.before != nil {
				require.NoError(t, c.before(s))
			}
			before := m.Sim.Calls("cuMemcpyAsync")
			e, err := gpu.Upload(background, []device.Range{ // neighbours at their destinations only
				{Dst: own.Ptr(), Src: c.from.Ptr() + size, Size: size}, {Dst: own.Ptr() + size, Src: c.from.Ptr(), Size: size},
			}, s)
			require.NoError(t, err)
			assert.Equal(t, c.copies, m.Sim.Calls("cuMemcpyAsync")-before)
			require.NoError(t, e.Synchronize(background))
			require.NoError(t, e.Close())
			require.NoError(t, s.Close())
		})
	}
	require.NoError(t, own.Free(writer))
	require.NoError(t, locked.Free(writer))
	require.NoError(t, managed.Free(writer))
	require.NoError(t, writer.Close())
}

// An upload to memory of the host, which the CPU copies, is made in its turn on the stream.
func TestUploadToTheHostWaitsForItsStream(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	pinned := m.GPUs[0].Pinned()
	const size = 1000
	s, locked := memoryOn(t, pinned, size)
	src := make([]byte, size)
	cudatest.Fill(src, 7)
	open := m.Hold(t, s)
	require.NoError(t, pinned.Memset(locked.Ptr(), 0xdd, size, s))
	done := make(chan device.Event, 1)
	m.Sim.ResetCounters()
	go func() {
		e, err := pinned.Upload(background, []device.Range{{Dst: locked.Ptr(), Src: cudatest.Pointer(src), Size: size}}, s)
		assert.NoError(t, err)
		done <- e
	}()
	for m.Sim.Calls("cuEventQuery") < 5 && len(done) == 0 {
		runtime.Gosched()
	}
	assert.Empty(t, done, "it has not waited for the work before it")
	open()
	e := <-done
	require.NotNil(t, e)
	require.NoError(t, e.Synchronize(background))
	require.NoError(t, e.Close())
	m.HostRead(locked.Ptr(), size)
	assert.Equal(t, src, cudatest.At(locked.Ptr(), size))
	require.NoError(t, locked.Free(s))
	require.NoError(t, s.Close())
}

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
						{Dst: to.Ptr(), Src: cudatest.Pointer(src), Size: 5 * mib}, {Dst: to.Ptr() + 5*mib, Src: bad, Size: 100},
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
					if e, err := gpu.Pinned().Upload(background, []device.Range{{Dst: mem.Ptr(), Src: cudatest.Pointer(src), Size: 8 * mib}}, s); err == nil {
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
	e, err := gpu.Upload(ctx, []device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(src), Size: int64(len(src))}}, s)
	if err != nil {
		assert.Nil(t, e)
		return false
	}
	want := bytes.Clone(src)
	clear(src)
	err = errors.Join(e.Synchronize(background), e.Close())
	if err == nil {
		err = gpu.Copy([]device.Range{{Dst: cudatest.Pointer(back), Src: own.Ptr(), Size: int64(len(back))}}, s)
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
	m := cudatest.Simulated(t, cudasim.Options{Delay: 20 * time.Microsecond, Random: true})
	gpu := m.GPUs[0]
	const goroutines, rounds, largest = 6, 25, 20 * mib
	var streams []device.Stream
	for range 2 {
		s, err := gpu.NewStream()
		require.NoError(t, err)
		streams = append(streams, s)
	}
	end := betweenCopies(gpu, runtime.Gosched)
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

// betweenCopies has f called by each upload to the GPU after each copy out of staging memory that it
// enqueues, until end is called. No upload may run during the two calls.
func betweenCopies(d *cudaalloc.Device, f func()) (end func()) {
	s := &core.Of(d).Staging
	s.BetweenCopies(f)
	return func() { s.BetweenCopies(nil) }
}
