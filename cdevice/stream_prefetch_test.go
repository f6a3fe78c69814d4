package cdevice_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Streams that are read ahead of their reader: Prefetch, and copies.

func TestPrefetchKeepsOrderAndEnds(t *testing.T) {
	checkLeaks(t)
	for depth := range 5 {
		s := newScript(t, numbered(t, 20)...).failing(15, 5, "late")
		r, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		r.Prefetch(depth)
		assert.Zero(t, s.nexts.Load(), "it begins with the first batch that is asked for")
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, upTo(15), numbers)
		assert.ErrorContains(t, err, "late", "the error comes in its place")
		assert.EqualValues(t, 16, s.nexts.Load())
		r.Release()
		within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
	}
}

// Not more than depth batches are ready beyond the one that is in use.
func TestPrefetchDepthIsALimit(t *testing.T) {
	checkLeaks(t)
	for _, depth := range []int{1, 2, 7} {
		s := newScript(t, numbered(t, 50)...)
		r, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		r.Prefetch(depth)
		for taken := 1; taken < 5; taken++ {
			require.True(t, r.Next())
			within.Eventually(t, "the batches ahead", func() bool { return int(s.nexts.Load()) == taken+depth })
		}
		for range 100 { // long enough for one too many
			runtime.Gosched()
		}
		assert.EqualValues(t, 4+depth, s.nexts.Load())
		r.Release()
		within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
	}
}

// A prefetcher allocates for the batches that there are, not for those that there might be.
func TestPrefetchAllocatesAsNeeded(t *testing.T) {
	checkLeaks(t)
	r := newScript(t, numbered(t, 1)...).reader(t).Prefetch(1 << 20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	numbers, err := numbersOf(t, r.All())
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Equal(t, upTo(1), numbers)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestPrefetchDepthIsBounded(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{1<<20 + 1, 1 << 27, 1 << 62, math.MaxInt} {
		s := newScript(t, numbered(t, 1)...)
		r := s.reader(t).Prefetch(n)
		assert.False(t, r.Next())
		assert.EqualError(t, r.Err(), fmt.Sprintf("cdevice: read: Prefetch = %d, want at most 1048576: invalid", n))
		assert.Zero(t, s.nexts.Load())
	}
	ended := newScript(t).reader(t)
	assert.False(t, ended.Next())
	assert.NoError(t, ended.Prefetch(math.MaxInt).Err(), "on a reader that has ended it does nothing")
}

// A release does not wait for a producer that does not answer.
func TestReleaseDoesNotWaitForAPrefetch(t *testing.T) {
	checkLeaks(t)
	stats := cdevice.ReadStats()
	s := newScript(t, numbered(t, 3)...)
	next, answer := s.getNext, make(chan struct{})
	s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
		if call == 1 {
			<-answer
		}
		return next(call, out)
	}
	r, err := cdevice.ImportRecordReader(s.stream)
	require.NoError(t, err)
	r.Prefetch(2)
	require.True(t, r.Next())
	within.Eventually(t, "the second call", func() bool { return s.nexts.Load() == 2 })
	r.Release()
	assert.Zero(t, s.releases.Load(), "not while a call is under way")
	close(answer)
	within.Eventually(t, "the release after the call", func() bool { return s.releases.Load() == 1 })
	within.Eventually(t, "the release of its batch", func() bool { return cdevice.ReadStats().ImportedArrays == stats.ImportedArrays })
}

func TestPrefetchThatNobodyAskedIsReleased(t *testing.T) {
	checkLeaks(t)
	s := newScript(t)
	r, err := cdevice.ImportRecordReader(s.stream)
	require.NoError(t, err)
	r.Prefetch(3)
	r.Release()
	assert.EqualValues(t, 1, s.releases.Load())
	assert.Zero(t, s.nexts.Load())
}

// The copy of the next batch is made while the consumer holds this one, and the batch after that is
// read.
func TestCopyingIsOneBatchAhead(t *testing.T) {
	checkLeaks(t)
	from := newScript(t, numbered(t, 10)...)
	src, err := cdevice.ImportRecordReader(from.stream)
	require.NoError(t, err)
	r, err := src.CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	assert.Zero(t, from.nexts.Load())
	for taken := 1; taken < 5; taken++ {
		require.True(t, r.Next())
		within.Eventually(t, "the next ones", func() bool { return int(from.nexts.Load()) == taken+2 })
		assert.Equal(t, taken-1, numberOf(t, r.RecordBatch()))
	}
	src.Release()
	assert.Zero(t, from.releases.Load(), "the copies hold it")
	release(t, r)
}

// While a copy waits, for memory here, the next batch is read.
func TestTheNextBatchIsReadDuringACopy(t *testing.T) {
	checkLeaks(t)
	from := newScript(t, numbered(t, 10)...)
	src, err := cdevice.ImportRecordReader(from.stream)
	require.NoError(t, err)
	dev := waiting{device.CPUDevice(), make(chan struct{})}
	r, err := src.CopyTo(background, dev)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { r.Next(); ended <- r.Err() }()
	<-dev.asked
	within.Eventually(t, "the next one", func() bool { return from.nexts.Load() == 2 })
	closes(t, r)
	assert.ErrorIs(t, <-ended, cdevice.ErrReleased)
	r.Release()
	src.Release()
	within.Eventually(t, "the release", func() bool { return from.releases.Load() == 1 })
}

// The end of the context drops a batch that was read ahead. The stream then ends with the context's
// error, and not as if that batch had never been.
func TestEndOfTheContextIsNoEndOfTheStream(t *testing.T) {
	checkLeaks(t)
	for round := range 500 {
		ctx, cancel := context.WithCancel(background)
		asked := 0
		src, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
			switch asked++; asked {
			case 1:
				return numberedBatch(t, 0), nil
			case 2:
				go func() { // at about the time when this batch is taken
					for range round % 50 {
						runtime.Gosched()
					}
					cancel()
				}()
				return numberedBatch(t, 1), nil
			}
			return nil, io.EOF
		}, nil)
		require.NoError(t, err)
		r, err := src.CopyTo(ctx, device.CPUDevice())
		require.NoError(t, err)
		src.Release()
		n := 0
		for r.Next() {
			n++
		}
		if n < 2 {
			require.ErrorIs(t, r.Err(), context.Canceled, "round %d: %d of 2 batches", round, n)
		}
		r.Release()
		cancel()
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	settles(t) // goroutines of earlier tests may end meanwhile, so that their number says nothing of the readers
	before := runtime.NumGoroutine()
	for range 20 {
		for read := range 4 {
			batches := numbered(t, 3)
			s := newScript(t, batches...)
			imported, err := cdevice.ImportRecordReader(s.stream)
			require.NoError(t, err)
			imported.Prefetch(2)
			sequence := iterated(t, nil, batches...)
			copied, err := sequence.CopyTo(background, device.CPUDevice())
			require.NoError(t, err)
			for _, r := range []*cdevice.RecordReader{imported, copied, sequence} {
				for range read {
					r.Next()
				}
				r.Release()
			}
			within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
		}
	}
	within.Eventually(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// Items that are ready when a reader ends are dropped then, whether the producer has more,
// has ended, or does not answer.
func TestReadyBatchesAreDroppedWithTheirReader(t *testing.T) {
	for name, batches := range map[string]int{"more": 100, "ended": 4} {
		for _, end := range []string{"Release", "Close"} {
			t.Run(name+", "+end, func(t *testing.T) {
				checkLeaks(t)
				before := cdevice.ReadStats().ImportedArrays
				s := newScript(t, numbered(t, batches)...)
				r, err := cdevice.ImportRecordReader(s.stream)
				require.NoError(t, err)
				r.Prefetch(7)
				require.True(t, r.Next())
				ahead := min(8, batches)
				within.Eventually(t, "the batches ahead", func() bool { return cdevice.ReadStats().ImportedArrays == before+int64(ahead) })
				if end == "Close" {
					closes(t, r)
					assert.Equal(t, before+1, cdevice.ReadStats().ImportedArrays, "the one that Next took")
				}
				r.Release()
				within.Eventually(t, "the release of all batches", func() bool { return cdevice.ReadStats().ImportedArrays == before })
				within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 }) // the goroutine's last act
			})
		}
	}
	t.Run("no answer", func(t *testing.T) {
		checkLeaks(t)
		before := cdevice.ReadStats().ImportedArrays
		s := newScript(t, numbered(t, 9)...)
		next, called, answer := s.getNext, make(chan struct{}), make(chan struct{})
		s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
			if call == 4 {
				close(called)
				<-answer
			}
			return next(call, out)
		}
		r, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		r.Prefetch(7)
		require.True(t, r.Next())
		<-called
		r.Release()
		assert.Equal(t, before, cdevice.ReadStats().ImportedArrays, "what was ready does not wait for the answer")
		close(answer)
		closes(t, r)
	})
}
