package cdevice_test

import (
	"context"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A reader that is closed from inside, by many, or while its source misbehaves.

// The source itself closes its reader, which waits for the source: ctx ends that.
func TestCloseInsideTheSource(t *testing.T) {
	checkLeaks(t)
	b := numbered(t, 1)[0]
	var r *cdevice.RecordReader
	stops := 0
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		expires(t, r.Close)
		b.Retain()
		return b, nil
	}, func() { stops++ })
	require.NoError(t, err)
	isAfter := func() {
		t.Helper()
		assert.False(t, r.Next(), "the batch is dropped")
		assert.ErrorIs(t, r.Err(), cdevice.ErrReleased)
		closes(t, r)
		assert.Equal(t, 1, stops)
		r.Release()
	}
	isAfter()

	stops = 0
	r, err = cdevice.NewRecordReader(numberedSchema, device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
		defer func() { stops++ }()
		expires(t, r.Close)
		yield(b, nil)
	})
	require.NoError(t, err)
	isAfter()

	r = nil
	r = unending(t, func() { expires(t, r.Close) })
	closes(t, r)
	r.Release()
}

// Between two batches, no call is under way.
func TestCloseInsideALoop(t *testing.T) {
	checkLeaks(t)
	for _, r := range []*cdevice.RecordReader{unending(t, nil), iterated(t, nil, numbered(t, 3)...)} {
		var errs []error
		for b, err := range r.All() {
			if errs = append(errs, err); err == nil {
				closes(t, r)
				assert.Equal(t, 0, numberOf(t, b), "it is the loop's")
			}
		}
		require.Len(t, errs, 2)
		assert.NoError(t, errs[0])
		assert.ErrorIs(t, errs[1], cdevice.ErrReleased)
		r.Release()
	}
}

// The source's stop function panics, ends its goroutine, or releases the reader.
func TestStopThatMisbehavesInClose(t *testing.T) {
	checkLeaks(t)
	seen := panics(t)
	var r *cdevice.RecordReader
	for i, stop := range []func(){
		func() { panic("in stop") }, runtime.Goexit, func() { r.Release() },
	} {
		r = unending(t, stop)
		require.True(t, r.Next())
		closes(t, r)
		assert.EqualValues(t, 1, seen.Load())
		if i < 2 {
			r.Release()
		}
		copied := unending(t, stop)
		if i < 2 {
			over, err := copied.CopyTo(background, device.CPUDevice())
			require.NoError(t, err)
			copied.Release()
			copied = over
			require.True(t, copied.Next())
		}
		r = copied
		closes(t, copied)
		if i < 2 {
			copied.Release()
		}
		seen.Store(1)
	}
}

// However many close, ask and release at once, the source is stopped once, after the last
// call, and none of them waits for ever.
func TestCloseHammer(t *testing.T) {
	checkLeaks(t)
	for round := range 200 {
		var inside, stops atomic.Int64
		b := numbered(t, 1)[0]
		r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
			assert.EqualValues(t, 1, inside.Add(1))
			defer inside.Add(-1)
			assert.Zero(t, stops.Load(), "it was stopped")
			b.Retain()
			return b, nil
		}, func() {
			assert.Zero(t, inside.Load(), "it is being asked")
			stops.Add(1)
		})
		require.NoError(t, err)
		if round%2 == 1 {
			over, err := r.CopyTo(background, device.CPUDevice())
			require.NoError(t, err)
			r.Release()
			r = over
		}
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
		assert.EqualValues(t, 1, stops.Load())
	}
}

// A copy that waits for memory is given up.
func TestCloseEndsTheWaitOfACopy(t *testing.T) {
	checkLeaks(t)
	stops := 0
	src := unending(t, func() { stops++ })
	dev := waiting{device.CPUDevice(), make(chan struct{})}
	r, err := src.CopyTo(background, dev)
	require.NoError(t, err)
	src.Release()
	go r.Next()
	<-dev.asked
	closes(t, r)
	assert.Equal(t, 1, stops)
	r.Release()
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

func TestCloseOfAnArrayReader(t *testing.T) {
	checkLeaks(t)
	numbers := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	a, err := cdevice.WrapArray(numbers, device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	stops := 0
	r, err := cdevice.NewArrayReader(a.Field(), device.CPU, func(yield func(*cdevice.Array, error) bool) {
		defer func() { stops++ }()
		for yield(a, nil) {
		}
	})
	require.NoError(t, err)
	s := garbageStream()
	require.NoError(t, cdevice.ExportArrayReader(r, s))
	require.True(t, r.Next())
	closes(t, r)
	assert.Equal(t, 1, stops)
	assert.EqualValues(t, 3, r.Array().Len(), "the array that Next took is the caller's")
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), cdevice.ErrReleased)
	assert.NotZero(t, bridge.CallGetNext(abi.As[abi.ArrowDeviceArrayStream](s), abi.As[abi.ArrowDeviceArray](garbageArray())))
	cdevice.ReleaseStruct(s)
	var none context.Context
	assert.ErrorIs(t, r.Close(none), arrow.ErrInvalid)
	r.Release()
}

// At the end of a stream, nothing is in use any more when Release returns.
func TestNothingIsHeldAfterTheEnd(t *testing.T) {
	checkLeaks(t)
	for name, layer := range layers(t) {
		for _, fails := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				batches := numbered(t, 4)
				before := cdevice.ReadStats()
				for range 50 {
					s := newScript(t, batches...)
					want := 4
					if fails {
						s, want = s.failing(3, 5, "disk on fire"), 3
					}
					r := layer(s)
					n, err := numbersOf(t, r.All())
					assert.Equal(t, upTo(want), n)
					assert.Equal(t, fails, err != nil)
					r.Release()
					require.EqualValues(t, 1, s.releases.Load())
					require.Equal(t, before.Readers, cdevice.ReadStats().Readers)
					require.Equal(t, before.Goroutines, cdevice.ReadStats().Goroutines)
					require.Equal(t, before.ImportedStreams, cdevice.ReadStats().ImportedStreams)

					s = newScript(t, batches...)
					r = layer(s)
					h := r.HostReader(background, nil)
					r.Release()
					for h.Next() {
					}
					require.NoError(t, h.Err())
					require.EqualValues(t, 1, s.releases.Load())
					h.Release()
					require.Equal(t, before.Readers, cdevice.ReadStats().Readers)
					require.Equal(t, before.Goroutines, cdevice.ReadStats().Goroutines)
				}
			})
		}
	}
}

// The end is given when the source was stopped, not before.
func TestPrefetchedSourceIsStopped(t *testing.T) {
	checkLeaks(t)
	for range 100 {
		var stopped atomic.Bool
		src, err := readerFunc(numberedSchema, device.CPU, nextOf(nil, numbered(t, 2)...), func() {
			for range 10 {
				runtime.Gosched()
			}
			stopped.Store(true)
		})
		require.NoError(t, err)
		r, err := src.CopyTo(background, device.CPUDevice())
		require.NoError(t, err)
		src.Release()
		for r.Next() {
		}
		assert.True(t, stopped.Load())
		r.Release()
	}
}

// A function that ends the goroutine of its caller is not asked again.
func TestSourceThatEndsItsCallersGoroutine(t *testing.T) {
	checkLeaks(t)
	asks := 0
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		asks++
		runtime.Goexit()
		return nil, io.EOF
	}, nil)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Next()
	}()
	<-done
	assert.False(t, r.Next())
	assert.ErrorContains(t, r.Err(), "ended its goroutine")
	assert.Equal(t, 1, asks)
	closes(t, r)
	r.Release()
}
