package cdevice_test

import (
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// The reader of an asynchronous stream: how the stream ends with it, and the methods of all
// readers.

func TestQueueSizesThatAreNone(t *testing.T) {
	settles(t)
	for _, n := range []int{-1, 1<<20 + 1} {
		handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
		_, err := cdevice.ImportAsync(background, handler, n)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.ErrorContains(t, err, "queueSize = ")
		assert.Zero(t, *handler, "it is not filled")
	}
}

func TestAsyncStreamHasOneReader(t *testing.T) {
	p := begun(t, soon(t), 0, 0)
	r, err := p.s.Reader(soon(t))
	require.NoError(t, err)
	again, err := p.s.Reader(soon(t))
	require.NoError(t, err)
	assert.Same(t, r, again)
	again.Release()
	p.send(1)
	assert.True(t, r.Next())
	p.InRequest(cpeer.InRelease)
	r.Release()
	_, err = p.s.Reader(soon(t))
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	assert.NoError(t, p.s.Close(soon(t)), "after the last Release too")
}

// The last Release cancels, and does not wait for the producer.
func TestAsyncReaderReleaseCancels(t *testing.T) {
	for name, waiting := range map[string]bool{"": false, "while Next waits": true} {
		t.Run(name, func(t *testing.T) {
			p := begun(t, background, 0, 2)
			r, err := p.s.Reader(soon(t))
			require.NoError(t, err)
			require.True(t, r.Next())
			next := make(chan bool, 1)
			if waiting {
				require.True(t, r.Next())
				go func() { next <- r.Next() }()
				within.Eventually(t, "the queue is empty", func() bool { return p.Calls().Requested == 6 })
				time.Sleep(10 * time.Millisecond)
			} else {
				next <- false
			}
			r.Release()
			require.NoError(t, p.WaitCancelled())
			assert.False(t, <-next)
			within.Eventually(t, "what was ready is dropped", func() bool { return p.tasks[0].Extracted()+p.tasks[1].Extracted() == 2 })
			p.Release()
		})
	}
}

// Close of the reader, or of the stream, waits for the producer until its context is done.
func TestAsyncStreamCloseEndsWithItsContext(t *testing.T) {
	for name, withReader := range map[string]bool{"stream": false, "reader": true} {
		t.Run(name, func(t *testing.T) {
			p := begun(t, background, 0, 0)
			closing := p.s.Close
			if withReader {
				r, err := p.s.reader(soon(t))
				require.NoError(t, err)
				closing = r.Close
			}
			expires(t, closing)
			expires(t, closing)
			require.NoError(t, p.WaitCancelled(), "the closing goes on")
			p.Release()
			assert.NoError(t, closing(soon(t)))
			assert.NoError(t, p.s.Close(soon(t)))
			assert.NoError(t, closing(canceled), "there is nothing to wait for")
		})
	}
}

// A stream that has ended by itself is given back by Release: no goroutine is needed for it.
func TestAsyncReaderReleaseAfterTheEnd(t *testing.T) {
	checkLeaks(t)
	p := begun(t, soon(t), 0, 1)
	p.End()
	n, err := p.all()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	p.Release()
	within.Eventually(t, "the last request", func() bool { return cdevice.ReadStats().Goroutines == 0 })
	before := cdevice.ReadStats()
	p.s.released.Do(p.s.r.Release)
	assert.Equal(t, before.Readers-1, cdevice.ReadStats().Readers)
	assert.Zero(t, cdevice.ReadStats().Goroutines)
}

// Copies of the stream have its metadata.
func TestAsyncStreamIsCopied(t *testing.T) {
	settles(t)
	rec := twoColumns(t)
	md := arrow.NewMetadata([]string{"rows"}, []string{"15"})
	r, err := connect(t, soon(t), repeated(t, rec, 3).WithMetadata(md), 0).reader(soon(t))
	require.NoError(t, err)
	copied, err := r.CopyTo(soon(t), device.CPUDevice())
	require.NoError(t, err)
	defer copied.Release()
	assert.True(t, md.Equal(copied.Metadata()))
	for range 3 {
		require.True(t, copied.Next())
		assert.True(t, sameRecord(t, rec, copied.RecordBatch()))
	}
	assert.False(t, copied.Next())
	assert.NoError(t, copied.Err())
}

// In a chain, cancel goes up: the middle gives up the batch that its own producer does not send.
func TestAsyncChainIsCancelledFromItsEnd(t *testing.T) {
	p := begun(t, background, 0, 0)
	r, err := p.s.Reader(soon(t))
	require.NoError(t, err)
	c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, r)
	r.Release()
	require.NoError(t, c.WaitEvent(cpeer.OnSchema))
	c.Producer().Cancel()
	require.NoError(t, p.WaitCancelled())
	p.Release()
	require.NoError(t, c.WaitReleased())
	assert.Equal(t, events(0, cpeer.Release), c.Events())
}
