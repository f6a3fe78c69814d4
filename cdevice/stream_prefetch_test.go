package cdevice_test

import (
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

func TestNoGoroutineIsLeft(t *testing.T) {
	settles(t)
	for read := range 4 {
		batches := numbered(t, 3)
		s := newScript(t, batches...)
		sequence := iterated(t, nil, batches...)
		copied, err := sequence.CopyTo(background, device.CPUDevice())
		require.NoError(t, err)
		for _, r := range []*cdevice.RecordReader{importing(t)(s).Prefetch(2), copied, sequence} {
			for range read {
				r.Next()
			}
			r.Release()
		}
		within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
	}
}
