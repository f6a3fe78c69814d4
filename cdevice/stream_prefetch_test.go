package cdevice_test

import (
	"context"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Streams that are read ahead of their reader: Prefetch, and copies.

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
	for round := range 100 {
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
	for range 5 {
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
