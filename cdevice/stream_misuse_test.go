package cdevice_test

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Streams that their users, or sources, misuse.

// Many goroutines call a reader that was released: its source is not asked, and not stopped again.
func TestReleasedReaderStaysReleased(t *testing.T) {
	checkLeaks(t)
	for range 300 {
		var stops, asks atomic.Int64
		made, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
			asks.Add(1)
			return nil, errSource
		}, func() { stops.Add(1) })
		require.NoError(t, err)
		s := newScript(t) // released once: a second call would be one of NULL
		imported, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		for _, r := range []*cdevice.RecordReader{made, imported} {
			r.Release()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 10 {
						for _, err := range r.All() {
							assert.ErrorIs(t, err, cdevice.ErrReleased)
						}
						_ = cdevice.ExportRecordReader(r, garbageStream())
					}
				})
			}
			wg.Wait()
		}
		assert.EqualValues(t, 1, stops.Load())
		assert.Zero(t, asks.Load())
		assert.Zero(t, s.nexts.Load())
	}
}

// However many goroutines are reading, a release ends the stream.
func TestReleaseEndsAStreamThatManyRead(t *testing.T) {
	checkLeaks(t)
	b := numberedBatch(t, 1)
	defer b.Release()
	var asks, stops atomic.Int64
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		asks.Add(1)
		b.Retain()
		return b, nil
	}, func() { stops.Add(1) })
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, err := range r.All() {
				if err != nil {
					assert.ErrorIs(t, err, cdevice.ErrReleased)
				}
			}
		})
	}
	within.Eventually(t, "the reading", func() bool { return asks.Load() > 100 })
	r.Release()
	wg.Wait() // without an end, they would read for ever
	assert.EqualValues(t, 1, stops.Load())
}

// The last release during a call takes the batch that the call gave, too.
func TestReleaseDuringNext(t *testing.T) {
	checkLeaks(t)
	s := newScript(t, numbered(t, 1)...)
	r, err := cdevice.ImportRecordReader(s.stream)
	require.NoError(t, err)
	next := s.getNext
	s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
		r.Release()
		return next(call, out)
	}
	assert.False(t, r.Next(), "there is no batch for the caller")
	assert.Nil(t, r.RecordBatch())
	assert.ErrorIs(t, r.Err(), cdevice.ErrReleased)
}

// An error of a source is an error for C, even if its number is 0 as a C int.
func TestErrorIsNeverCodeZero(t *testing.T) {
	for _, err := range []error{
		&cdevice.ProducerError{Callback: "ArrowDeviceArrayStream.get_next"},
		&cdevice.ProducerError{Callback: "ArrowDeviceArrayStream.get_next", Code: 1 << 32},
		syscall.Errno(0), syscall.Errno(1 << 32),
	} {
		_, code := next(t, export(t, asked(t, err)))
		assert.EqualValues(t, syscall.EIO, code, "%#v", err)
	}
}

// A batch that could not be exported is not skipped: the stream ends with it.
func TestFailedExportEndsTheStream(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.export(t, asked(t, nil, numbered(t, 3)...))
		b, _ := nextOfStream(t, s)
		b.Release()
		restore := bridge.LimitBlocks(1)
		_, code := nextOfStream(t, s)
		restore()
		assert.EqualValues(t, syscall.ENOMEM, code)
		text := s.lastError()
		assert.Contains(t, text, "no memory")
		_, code = nextOfStream(t, s)
		assert.EqualValues(t, syscall.ENOMEM, code, "the same again")
		assert.Equal(t, text, s.lastError())
	})
}

// A source that ends its goroutine, as t.FailNow does, has failed.
func TestSourceThatExitsWhileItIsAskedAhead(t *testing.T) {
	checkLeaks(t)
	src, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		runtime.Goexit()
		return nil, nil
	}, nil)
	require.NoError(t, err)
	r, err := src.CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	assert.False(t, r.Next())
	assert.ErrorContains(t, r.Err(), "ended its goroutine")
	src.Release()
	release(t, r)
}

// Panics on goroutines without a waiting caller do not end the process.
func TestPanicInStop(t *testing.T) {
	checkLeaks(t)
	before := cdevice.ReadStats()
	seen := panics(t)
	open := func() *cdevice.RecordReader {
		r, err := readerFunc(numberedSchema, device.CPU, nextOf(nil, numbered(t, 2)...), func() { panic("in stop") })
		require.NoError(t, err)
		return r
	}
	cdevice.ReleaseStruct(export(t, open()))
	assert.EqualValues(t, 1, seen.Load(), "no panic crosses into C")
	assert.Equal(t, before.ExportedStreams, cdevice.ReadStats().ExportedStreams)

	src := open()
	r, err := src.CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	src.Release()
	require.True(t, r.Next())
	r.Release()
	within.Eventually(t, "the panic of a source that is asked ahead", func() bool { return seen.Load() == 2 })

	r = open()
	assert.PanicsWithValue(t, "in stop", r.Release, "a panic on the program's goroutine is the program's")
}

// An iterator that panics after its stream was released is heard of.
func TestPanicOfAStoppedIterator(t *testing.T) {
	seen := panics(t)
	b := numbered(t, 1)[0]
	r, err := cdevice.NewRecordReader(numberedSchema, device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
		yield(b, nil)
		panic("while it cleans up")
	})
	require.NoError(t, err)
	require.True(t, r.Next())
	r.Release()
	assert.EqualValues(t, 1, seen.Load())
}

// The first error counts, also of an iterator that goes on after it.
func TestFirstErrorOfAnIteratorCounts(t *testing.T) {
	r, err := cdevice.NewRecordReader(numberedSchema, device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
		yield(nil, errSource)
		yield(nil, errors.New("another"))
	})
	require.NoError(t, err)
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), errSource)
}

func TestReleasedBatchDoesNotComeBack(t *testing.T) {
	checkLeaks(t)
	in := newScript(t, numbered(t, 1)...).reader(t)
	require.True(t, in.Next())
	b := in.RecordBatch()
	require.False(t, in.Next()) // b is released, and its memory
	iterator, err := cdevice.NewRecordReader(numberedSchema, device.CPU, yielding(nil, b))
	require.NoError(t, err)
	_, err = numbersOf(t, iterator.All())
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	iterator.Release()
}

// A source may return a batch beside an error: the batch is released.
func TestBatchBesideAnErrorIsReleased(t *testing.T) {
	checkLeaks(t)
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		return numberedBatch(t, 1), errSource
	}, nil)
	require.NoError(t, err)
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), errSource)
}

// After a release the source is not called any more, even if the reader prefetches.
func TestNothingIsAskedAheadAfterTheRelease(t *testing.T) {
	for range 20 {
		s := newScript(t, numbered(t, 12)...)
		next, answer := s.getNext, make(chan struct{})
		s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
			if call == 1 {
				<-answer
			}
			return next(call, out)
		}
		r, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		r.Prefetch(10)
		require.True(t, r.Next())
		within.Eventually(t, "the second call", func() bool { return s.nexts.Load() == 2 })
		r.Release()
		close(answer)
		within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
		assert.EqualValues(t, 2, s.nexts.Load())
		streamsEnd(t)
	}
}

// WithReleaser also applies to refused input.
func TestReleaseWithHoldsForBadInput(t *testing.T) {
	checkLeaks(t)
	count := 0
	with := cdevice.WithReleaser(func(release func()) { count++; release() })
	s := newScript(t)
	s.stream.DeviceType = 0
	_, err := cdevice.ImportRecordReader(s.stream, with)
	assert.Error(t, err)
	assert.Equal(t, 1, count, "the stream's release")

	for name, change := range map[string]func(*abi.ArrowDeviceArray){
		"device type": func(a *abi.ArrowDeviceArray) { a.DeviceType = 12 },
		"buffers":     func(a *abi.ArrowDeviceArray) { a.Array.NBuffers = 2 },
	} {
		s = newScript(t, numbered(t, 1)...)
		next := s.getNext
		s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
			code := next(call, out)
			change(out)
			return code
		}
		r, err := cdevice.ImportRecordReader(s.stream, with)
		require.NoError(t, err)
		count = 0
		assert.False(t, r.Next())
		assert.Equal(t, 1, count, "the array's release: %s", name)
		r.Release()
	}

	count = 0
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(numbered(t, 1)[0], out, schema))
	cdevice.ReleaseStruct(schema)
	_, err = cdevice.ImportRecordBatch(out, schema, with)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	assert.Equal(t, 1, count, "of an array whose schema is bad")
	assert.Zero(t, out.Array.Release)
}

// All batches of a stream have its schema, even if the names in their own differ.
func TestBatchesHaveTheirStreamsSchema(t *testing.T) {
	checkLeaks(t)
	other := arrow.NewSchema([]arrow.Field{{Name: "m", Type: arrow.PrimitiveTypes.Int64}}, nil)
	r, err := cdevice.NewRecordReader(other, device.CPU, yielding(nil, numbered(t, 2)...))
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next())
	assert.Same(t, other, r.RecordBatch().Schema())
	h := r.HostReader(background, nil)
	defer h.Release()
	w := ipc.NewWriter(new(bytes.Buffer), ipc.WithSchema(h.Schema()))
	require.True(t, h.Next())
	assert.NoError(t, w.Write(h.RecordBatch()))
	assert.Equal(t, 1, numberIn(h.RecordBatch()))
}

// The source may query the state of its stream.
func TestErrInsideTheSource(t *testing.T) {
	var r *cdevice.RecordReader
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		assert.NoError(t, r.Err())
		return nil, errSource
	}, nil)
	require.NoError(t, err)
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), errSource)
}

func TestNewReadersNameWhatIsMissing(t *testing.T) {
	for _, err := range []error{
		second(cdevice.NewRecordReader(numberedSchema, 0, yielding(nil))),
		second(readerFunc(numberedSchema, -1, nextOf(nil), nil)),
		second(cdevice.NewArrayReader(arrow.Field{Type: arrow.PrimitiveTypes.Int8}, 0, func(func(*cdevice.Array, error) bool) {})),
	} {
		assert.ErrorContains(t, err, "cdevice: new: device_type = ")
	}
}

// A call that waits behind another one when the last reference goes does not ask the source.
func TestCallThatWaitsIsNotAskedAfterTheRelease(t *testing.T) {
	checkLeaks(t)
	var asks atomic.Int64
	let := make(chan struct{})
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		asks.Add(1)
		<-let
		return numberedBatch(t, 0), nil
	}, nil)
	require.NoError(t, err)
	done := make(chan struct{})
	for range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range r.All() {
				return
			}
		}()
	}
	within.Eventually(t, "the first call", func() bool { return asks.Load() == 1 })
	time.Sleep(20 * time.Millisecond) // the second one waits for it
	r.Release()
	close(let)
	<-done
	<-done
	assert.EqualValues(t, 1, asks.Load())
}
