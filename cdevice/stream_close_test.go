package cdevice_test

import (
	"context"
	"sync/atomic"
	"syscall"
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

// Close ends a reader early, and returns when its source is not in use any more.

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
	assert.EqualValues(t, syscall.EINVAL, code, "it must not look like the end")
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

// passing makes a reader of a script, whose batches pass through a function.
func passing(t *testing.T) func(*script) *cdevice.RecordReader {
	return func(s *script) *cdevice.RecordReader { return importing(t)(s).Map(same) }
}

// iterating is a reader of an iterator that owns a reader.
func iterating(t *testing.T, src *cdevice.RecordReader) *cdevice.RecordReader {
	r, err := cdevice.NewRecordReader(src.Schema(), src.DeviceType(), func(yield func(*cdevice.RecordBatch, error) bool) {
		defer src.Release()
		src.All()(yield)
	})
	require.NoError(t, err)
	return r
}

func TestCloseWaitsForACallUnderWay(t *testing.T) {
	for name, layer := range layers(t) {
		for _, through := range []string{"Next", "C"} {
			t.Run(name+", "+through, func(t *testing.T) {
				checkLeaks(t)
				b := blocked(t, layer)
				s := garbageStream()
				require.NoError(t, cdevice.ExportRecordReader(b.r, s))
				asked := make(chan struct{})
				go func() {
					defer close(asked)
					if through == "C" {
						for code := 0; code == 0; {
							var got *cdevice.RecordBatch
							if got, code = next(t, s); code == 0 {
								got.Release()
							}
						}
					}
					for b.r.Next() {
					}
					assert.ErrorIs(t, b.r.Err(), cdevice.ErrReleased)
				}()
				<-b.called
				expires(t, b.r.Close)
				expires(t, b.r.Close)
				assert.Zero(t, b.releases.Load(), "it is being asked")
				assert.EqualValues(t, 1, b.inside.Load())

				closed := make(chan error)
				go func() { closed <- b.r.Close(background) }()
				b.answer()
				require.NoError(t, <-closed)
				assert.EqualValues(t, 1, b.releases.Load())
				asks := b.nexts.Load()
				assert.LessOrEqual(t, asks, int64(2), "nothing is asked any more")
				<-asked
				cdevice.ReleaseStruct(s)
				b.r.Release()
				assert.EqualValues(t, 1, b.releases.Load())
				assert.Equal(t, asks, b.nexts.Load(), "nothing is asked after that")
			})
		}
	}
}

// A reader that was closed has no answer to wait for, even if its source blocks.
func TestNextDoesNotWaitAfterClose(t *testing.T) {
	checkLeaks(t)
	b := blocked(t, importing(t))
	require.True(t, b.r.Next())
	go func() {
		for range b.r.All() { // holds the reader up
		}
	}()
	<-b.called
	expires(t, b.r.Close)
	within.Seconds(t, "Next", func() error { isClosed(t, b.r); return nil })
	b.answer()
	closes(t, b.r)
	b.r.Release()
}

// The source's stop function may block: Close returns with its context, and other calls do not
// wait.
func TestCloseWaitsForStop(t *testing.T) {
	checkLeaks(t)
	iterator := func(stop func()) *cdevice.RecordReader {
		b := numbered(t, 1)[0]
		r, err := cdevice.NewRecordReader(numberedSchema, device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
			defer stop()
			for yield(b, nil) {
			}
		})
		require.NoError(t, err)
		return r
	}
	for name, open := range map[string]func(stop func()) *cdevice.RecordReader{
		"function": func(stop func()) *cdevice.RecordReader { return unending(t, stop) },
		"iterator": iterator,
		"copied": func(stop func()) *cdevice.RecordReader {
			src := unending(t, stop)
			defer src.Release()
			r, err := src.CopyTo(background, device.CPUDevice())
			require.NoError(t, err)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun, let := make(chan struct{}), make(chan struct{})
			var stopped atomic.Bool
			r := open(func() { close(begun); <-let; stopped.Store(true) })
			require.True(t, r.Next())
			expires(t, r.Close)
			<-begun // on the goroutine of Close: Release, if it were first, would call stop
			within.Seconds(t, "Next", func() error { isClosed(t, r); return nil })
			within.Seconds(t, "Release", func() error { r.Release(); return nil })
			expires(t, r.Close)
			assert.EqualValues(t, 1, cdevice.ReadStats().Readers-readersOf(name), "it is not over")
			closed := make(chan error)
			go func() { closed <- r.Close(background) }()
			close(let)
			require.NoError(t, <-closed)
			assert.True(t, stopped.Load())
		})
	}
}

// readersOf is how many readers stand below the one of TestCloseWaitsForStop.
func readersOf(name string) int64 {
	if name == "copied" {
		return 1
	}
	return 0
}

func TestCloseWithAContextThatIsDone(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancel(background)
	cancel()
	let := make(chan struct{})
	r := unending(t, func() { <-let })
	assert.EqualError(t, r.Close(ctx), "cdevice: close: context canceled")
	isClosed(t, r)
	close(let)
	closes(t, r)
	assert.NoError(t, r.Close(ctx), "there is nothing to wait for")
	r.Release()
}

func TestCloseWithoutAContext(t *testing.T) {
	checkLeaks(t)
	r := unending(t, nil)
	var none context.Context
	err := r.Close(none)
	assert.EqualError(t, err, "cdevice: close: ctx = nil, want a context: invalid")
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.True(t, r.Next(), "nothing was closed")
	_, err = r.CopyTo(none, device.CPUDevice())
	assert.EqualError(t, err, "cdevice: copy: ctx = nil, want a context: invalid")
	r.Release()
}

// A stream that had ended keeps its end.
func TestCloseAfterTheEnd(t *testing.T) {
	checkLeaks(t)
	for _, want := range []error{nil, errSource} {
		r := asked(t, want, numbered(t, 2)...)
		n, err := numbersOf(t, r.All())
		assert.Equal(t, upTo(2), n)
		assert.ErrorIs(t, err, want)
		closes(t, r)
		assert.False(t, r.Next())
		assert.ErrorIs(t, r.Err(), want)
		n, err = numbersOf(t, r.All())
		assert.Empty(t, n)
		r.Release()
		assert.ErrorIs(t, err, want)
	}
}

// Close drops no reference, and Release does not wait for it.
func TestCloseKeepsTheReference(t *testing.T) {
	checkLeaks(t)
	before := cdevice.ReadStats().Readers
	r := unending(t, nil)
	require.True(t, r.Next())
	closes(t, r)
	assert.Equal(t, before+1, cdevice.ReadStats().Readers)
	assert.Equal(t, 0, numberOf(t, r.RecordBatch()), "the batch that Next took is the caller's")
	r.Release()
	assert.Equal(t, before, cdevice.ReadStats().Readers)
}

func TestCloseAfterRelease(t *testing.T) {
	checkLeaks(t)
	for name, layer := range layers(t) {
		t.Run(name, func(t *testing.T) {
			b := blocked(t, layer)
			go func() {
				for b.r.Next() {
				}
				b.r.Release()
			}()
			<-b.called
			expires(t, b.r.Close)
			b.answer()
			closes(t, b.r)
			assert.EqualValues(t, 1, b.releases.Load())
		})
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
