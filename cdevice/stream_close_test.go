package cdevice_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Close and Release of readers whose sources are streams of C, copies, and other readers. internal/items tests
// the rules of a reader.

func TestCloseEndsTheStreamForAllItsHolders(t *testing.T) {
	checkLeaks(t)
	stops := 0
	r := unending(t, func() { stops++ })
	r.Retain() // for the exported stream
	s := export(t, r)
	h := r.HostReader(background, nil)
	copied, err := r.CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	for range 3 {
		require.True(t, h.Next())
		require.True(t, copied.Next())
		b, code := next(t, s)
		require.Zero(t, code)
		b.Release()
	}

	closes(t, r)
	assert.Equal(t, 1, stops)
	isClosed(t, r)
	_, code := next(t, s)
	assert.EqualValues(t, errno.Code(syscall.ECANCELED), code, "it must not look like the end")
	assert.Contains(t, bridge.CallGetLastError(abi.As[abi.ArrowDeviceArrayStream](s)), "closed")
	assert.False(t, h.Next())
	assert.ErrorIs(t, h.Err(), cdevice.ErrReleased)
	for copied.Next() { // one may be ready
	}
	assert.ErrorIs(t, copied.Err(), cdevice.ErrReleased)

	closes(t, r)
	h.Release()
	copied.Release()
	cdevice.ReleaseStruct(s)
	r.Release()
	closes(t, r)
	assert.Equal(t, 1, stops)
}

// Close waits for a call under way, whether Go or C made it, and whether or not the last reference is gone.
func TestCloseWaitsForACallUnderWay(t *testing.T) {
	for name, layer := range layers(t) {
		for _, through := range []string{"Next", "C", "Next, released"} {
			t.Run(name+", "+through, func(t *testing.T) {
				checkLeaks(t)
				b := blocked(t, layer)
				s := garbageStream()
				require.NoError(t, cdevice.ExportRecordReader(b.r, s))
				read := make(chan struct{})
				go func() {
					defer close(read)
					for code := 0; through == "C" && code == 0; {
						var got *cdevice.RecordBatch
						if got, code = next(t, s); code == 0 {
							got.Release()
						}
					}
					for b.r.Next() {
					}
					assert.ErrorIs(t, b.r.Err(), cdevice.ErrReleased)
				}()
				<-b.called
				if through == "Next, released" {
					cdevice.ReleaseStruct(s)
					b.r.Release()
				}
				expires(t, b.r.Close)
				assert.Zero(t, b.releases.Load(), "it is being asked")
				assert.EqualValues(t, 1, b.inside.Load())

				closed := make(chan error)
				go func() { closed <- b.r.Close(background) }()
				b.answer()
				require.NoError(t, <-closed)
				assert.EqualValues(t, 1, b.releases.Load())
				asks := b.nexts.Load()
				if name != "through a HostReader" { // which does not stop the reader below before its own call ends
					assert.LessOrEqual(t, asks, int64(2), "nothing is asked any more")
				}
				<-read
				if through != "Next, released" {
					cdevice.ReleaseStruct(s)
					b.r.Release()
				}
				assert.EqualValues(t, 1, b.releases.Load())
				assert.Equal(t, asks, b.nexts.Load(), "nothing is asked after that")
			})
		}
	}
}

// A reader of which nothing was asked has nothing to wait for.
func TestCloseBeforeTheFirstBatch(t *testing.T) {
	checkLeaks(t)
	for name, layer := range layers(t) {
		if name == "through an All" {
			continue // its iterator, which has the reader, does not run
		}
		t.Run(name, func(t *testing.T) {
			s := newScript(t, numbered(t, 3)...)
			r := layer(s)
			closes(t, r)
			assert.EqualValues(t, 1, s.releases.Load())
			assert.Zero(t, s.nexts.Load())
			isClosed(t, r)
			r.Release()
		})
	}
}

// A copy that waits for memory is given up when the copies, or their source, are closed.
func TestCloseEndsTheWaitOfACopy(t *testing.T) {
	for _, closed := range []string{"copies", "source"} {
		t.Run(closed, func(t *testing.T) {
			checkLeaks(t)
			src := unending(t, nil)
			dev := waiting{device.CPUDevice(), make(chan struct{})}
			copies, err := src.CopyTo(background, dev)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { copies.Next(); ended <- copies.Err() }()
			<-dev.asked
			closes(t, map[string]*cdevice.RecordReader{"copies": copies, "source": src}[closed])
			assert.EqualError(t, <-ended, "cdevice: read: reader: closed: invalid: already released")
			copies.Release()
			src.Release()
			closes(t, copies)
		})
	}
}

// The stop function of a source that copies hold may block: Close of them returns with its context.
func TestCloseOfCopiesWaitsForStop(t *testing.T) {
	checkLeaks(t)
	before := cdevice.ReadStats().Readers
	begun, let := make(chan struct{}), make(chan struct{})
	src := unending(t, func() { close(begun); <-let })
	r := made(t, src)(src.CopyTo(background, device.CPUDevice()))
	require.True(t, r.Next())
	expires(t, r.Close)
	<-begun
	within.Seconds(t, "Release", func() error { r.Release(); return nil })
	expires(t, r.Close)
	assert.EqualValues(t, before+2, cdevice.ReadStats().Readers, "it is not over")
	close(let)
	closes(t, r)
}

// A panic of the stop function does not cross into C.
func TestPanicInStop(t *testing.T) {
	checkLeaks(t)
	before := cdevice.ReadStats()
	seen := panics(t)
	cdevice.ReleaseStruct(export(t, unending(t, func() { panic("in stop") })))
	assert.EqualValues(t, 1, seen.Load())
	assert.Equal(t, before.ExportedStreams, cdevice.ReadStats().ExportedStreams)
}

// slow is a device that refuses memory when it is let, whether or not its caller waits.
type slow struct {
	device.Device
	asked, let chan struct{}
}

func (slow) ID() device.ID { return extDev }

func (d slow) Allocate(context.Context, int64, device.Stream) (device.Memory, error) {
	close(d.asked)
	<-d.let
	return nil, errSource
}

// A copy reads the batch that it took from the reader: Close of that reader waits for it.
func TestCloseWaitsForACopyOfABatch(t *testing.T) {
	checkLeaks(t)
	stops := 0
	r := unending(t, func() { stops++ })
	dev := slow{device.CPUDevice(), make(chan struct{}), make(chan struct{})}
	c, err := r.CopyTo(background, dev)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		for c.Next() {
		}
		ended <- c.Err()
	}()
	<-dev.asked
	expires(t, r.Close)
	select {
	case <-ended:
		t.Error("the copy is under way")
	default:
	}
	close(dev.let)
	closes(t, r)
	assert.ErrorIs(t, <-ended, cdevice.ErrReleased)
	assert.Equal(t, 1, stops)
	r.Release()
	c.Release()
	closes(t, c)
}

// A source that is still held by others is given back, and no more.
func TestCloseOfACopyLeavesItsSource(t *testing.T) {
	checkLeaks(t)
	src := asked(t, nil, numbered(t, 9)...)
	r, err := src.CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	require.True(t, r.Next())
	closes(t, r)
	assert.True(t, src.Next(), "it goes on")
	r.Release()
	src.Release()
}

// WithReleaser may call the producer later: until then, the source is in use.
func TestCloseWaitsForReleaseWith(t *testing.T) {
	for _, depth := range []int{0, 2} {
		checkLeaks(t)
		s := newScript(t, numbered(t, 3)...)
		var holding atomic.Bool
		held := make(chan func(), 9)
		with := cdevice.WithReleaser(func(release func()) {
			if !holding.Load() {
				release()
				return
			}
			held <- release
		})
		r, err := cdevice.ImportRecordReader(s.stream, with)
		require.NoError(t, err)
		r.Prefetch(depth)
		require.True(t, r.Next())
		holding.Store(true)
		expires(t, r.Close)
		assert.Zero(t, s.releases.Load())
		holding.Store(false)
		within.Eventually(t, "the release of the stream", func() bool {
			for len(held) > 0 { // batches that were ready, and the stream, unless it comes only now
				(<-held)()
			}
			return s.releases.Load() > 0
		})
		closes(t, r)
		r.Release()
		for len(held) > 0 { // a batch that was on its way when the stream was released
			(<-held)()
		}
	}
}

// However many close, read and release copies at once, their source is stopped once, after the last call, and
// none of them waits for ever.
func TestCloseHammer(t *testing.T) {
	checkLeaks(t)
	for range 100 {
		var stops atomic.Int64
		src := unending(t, func() { stops.Add(1) })
		r := made(t, src)(src.CopyTo(background, device.CPUDevice()))
		var wg sync.WaitGroup
		for i := range 3 {
			r.Retain()
			wg.Go(func() {
				defer r.Release()
				for range r.All() {
				}
			})
			r.Retain()
			wg.Go(func() {
				defer r.Release()
				for range i {
					runtime.Gosched()
				}
				assert.NoError(t, r.Close(background))
				assert.EqualValues(t, 1, stops.Load())
			})
		}
		r.Release()
		wg.Wait()
	}
}

// At the end of a stream, nothing is in use any more when Release returns; a source that is read ahead is
// released before the end is given.
func TestNothingIsHeldAfterTheEnd(t *testing.T) {
	checkLeaks(t)
	for name, layer := range layers(t) {
		for _, fails := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				batches := numbered(t, 4)
				before := cdevice.ReadStats()
				for round := range 20 {
					s := newScript(t, batches...)
					want := 4
					if fails {
						s, want = s.failing(3, 5, "disk on fire"), 3
					}
					r := layer(s)
					var n int
					if round%2 == 0 {
						got, err := numbersOf(t, r.All())
						n = len(got)
						assert.Equal(t, upTo(want), got)
						assert.Equal(t, fails, err != nil)
						if name != "imported" && name != "through a HostReader" {
							require.EqualValues(t, 1, s.releases.Load())
						}
						r.Release()
					} else {
						h := r.HostReader(background, nil)
						r.Release()
						for h.Next() {
							n++
						}
						assert.Equal(t, fails, h.Err() != nil)
						h.Release()
					}
					assert.Equal(t, want, n)
					require.EqualValues(t, 1, s.releases.Load())
					after := cdevice.ReadStats()
					require.Equal(t, before.Readers, after.Readers)
					require.Equal(t, before.Goroutines, after.Goroutines)
					require.Equal(t, before.ImportedStreams, after.ImportedStreams)
				}
			})
		}
	}
}

// The device reads the batches in page-locked memory later.
func TestGPUCloseOfTheSourceWaitsForTheDevice(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		file, unmap := mappedFile(t, 6)
		locked, err := hostpinned.Register(gpu, file, hostpinned.WithReadOnly())
		require.NoError(t, err)
		rdr := inPlace(t, file, 3)
		r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
		require.NoError(t, err)
		rdr.Release()
		stream := newStream(t, gpu)
		open := m.Hold(t, stream)
		c, err := r.CopyTo(background, gpu, cdevice.WithStream(stream))
		require.NoError(t, err)
		require.True(t, c.Next())
		expires(t, r.Close)
		open()
		closes(t, r)
		require.NoError(t, locked.Unregister(background))
		require.NoError(t, unmap())
		back, err := c.RecordBatch().CopyToHost(background, nil)
		require.NoError(t, err)
		numbers := back.Column(0).(*array.Int64).Int64Values()
		assert.EqualValues(t, 0x0101010101010101, numbers[len(numbers)-1])
		back.Release()
		c.Release()
		r.Release()
		closes(t, c)
		require.NoError(t, gpu.Flush(background))
	})
}

// Close waits for a call that takes a batch until the batch is viewed, copied or exported; it ends
// the waits of readers that were made from its own.
func TestGPUCloseWaitsForEvents(t *testing.T) {
	checkLeaks(t)
	for _, how := range []string{"HostReader", "AsCPU"} {
		t.Run(how, func(t *testing.T) {
			m := cudatest.One(t, cudasim.Options{})
			gpu := m.GPUs[0]
			producer := newStream(t, gpu)
			open := m.Hold(t, producer)
			mem, err := gpu.Pinned().Allocate(background, 80, nil)
			require.NoError(t, err)
			ready, err := gpu.NewEvent()
			require.NoError(t, err)
			require.NoError(t, producer.Record(ready))
			pending, err := cdevice.NewRecordBatch(gpu.Pinned(), numberedSchema, 10, []cdevice.ArrayData{{Length: 10, Buffers: []device.Ptr{0, mem.Ptr()}}},
				cdevice.Lifetime{Ready: ready, Release: func() { mem.Free(nil) }})
			require.NoError(t, err)
			next, taken := nextOf(nil, pending), make(chan struct{})
			r, err := readerFunc(numberedSchema, device.CUDAHost, func() (*cdevice.RecordBatch, error) {
				close(taken)
				return next()
			}, nil)
			require.NoError(t, err)
			returned := make(chan struct{})
			begin := r.HostReader(background, nil)
			s := new(cdata.CArrowArrayStream)
			cpu, err := r.AsCPU(background)
			require.NoError(t, err)
			require.NoError(t, cdevice.ExportRecordReader(cpu, s))
			cpu.Release()
			go func() {
				defer close(returned)
				if how == "HostReader" {
					begin.Next()
					return
				}
				out := new(cdata.CArrowArray)
				if bridge.CallPlainGetNext(plainStream(s), plainArray(out)) == 0 && plainArray(out).Release != 0 {
					cdevice.ReleaseStruct(out)
				}
			}()
			<-taken
			time.Sleep(20 * time.Millisecond) // the batch is taken, and its event waited for
			if how == "HostReader" {
				expires(t, r.Close)
				open()
			}
			closes(t, r)
			<-returned
			if how == "AsCPU" { // whose wait Close ends
				open()
			}
			begin.Release()
			cdevice.ReleaseStruct(s)
			r.Release()
			pending.Release()
			require.NoError(t, gpu.Flush(background))
		})
	}
}
