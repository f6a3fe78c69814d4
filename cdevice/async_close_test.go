package cdevice_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// TestAsyncStreamClose is about Close of a stream that was imported.
func TestAsyncStreamClose(t *testing.T) {
	t.Run("cancels once, drops what is ready and what comes", func(t *testing.T) {
		p := consumed(t, soon(t), 4)
		require.Zero(t, p.begin())
		p.send(2)
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(p.s.close)
		}
		defer closing.Wait()
		require.NoError(t, p.WaitCancelled())
		for range 1000 {
			runtime.Gosched() // the others may cancel too, if they do
		}
		within.Eventually(t, "what was ready is dropped", func() bool { return p.tasks[0].Extracted()+p.tasks[1].Extracted() == 2 })
		p.send(2) // that were requested
		p.Release()
		p.s.close()
		assert.EqualValues(t, 4, p.Calls().Dropped)
		p.s.close()
		n, err := p.all()
		assert.Zero(t, n)
		assert.ErrorIs(t, err, cdevice.ErrReleased)
		assert.EqualValues(t, 1, p.Calls().Cancels)
	})
	// The producer is cancelled before ready tasks are dropped.
	t.Run("cancels before it drops", func(t *testing.T) {
		settles(t)
		h := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s := importAsync(t, background, h, 0)
		p := newGoProducer(t, h)
		cancelled := make(chan struct{})
		p.cancel = func() { close(cancelled) }
		require.Zero(t, p.begin(t))
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { <-cancelled; return 0 }))
		closed := make(chan struct{})
		go func() { s.close(); close(closed) }()
		<-cancelled
		bridge.CallHandlerRelease(abi.As[abi.ArrowAsyncDeviceStreamHandler](h))
		<-closed
	})
	// A producer that has said the end is not called any more: not to cancel either.
	t.Run("does not cancel after the end", func(t *testing.T) {
		settles(t)
		h := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s := importAsync(t, background, h, 0)
		p := newGoProducer(t, h)
		var cancels atomic.Int64
		p.cancel = func() { cancels.Add(1) }
		require.Zero(t, p.begin(t))
		dropped := make(chan struct{}) // which comes after the cancel, where there is one
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { close(dropped); return 0 }))
		require.Zero(t, bridge.CallOnNextTask(abi.As[abi.ArrowAsyncDeviceStreamHandler](h), nil, nil))
		closed := make(chan struct{})
		go func() { s.close(); close(closed) }()
		<-dropped
		assert.Zero(t, cancels.Load())
		bridge.CallHandlerRelease(abi.As[abi.ArrowAsyncDeviceStreamHandler](h))
		<-closed
	})
	// When Close returns, nothing is left, even if another goroutine ended the stream.
	t.Run("waits for what another goroutine drops", func(t *testing.T) {
		settles(t)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		h := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s := importAsync(t, ctx, h, 0)
		p := newGoProducer(t, h)
		require.Zero(t, p.begin(t))
		var extracted atomic.Int64
		inside, let := make(chan struct{}), make(chan struct{})
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { close(inside); <-let; extracted.Add(1); return 0 }))
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { extracted.Add(1); return 0 }))
		cancel()
		<-inside
		assert.Zero(t, bridge.CallOnNextTask(abi.As[abi.ArrowAsyncDeviceStreamHandler](h), nil, nil))
		bridge.CallHandlerRelease(abi.As[abi.ArrowAsyncDeviceStreamHandler](h))
		var closed sync.WaitGroup
		for range 2 {
			closed.Go(func() {
				s.close()
				assert.EqualValues(t, 2, extracted.Load())
			})
		}
		close(let)
		closed.Wait()
	})
	t.Run("a closed stream refuses the schema", func(t *testing.T) {
		ended, cancel := context.WithCancel(background)
		cancel()
		for name, ctx := range map[string]context.Context{"closed": background, "context": ended} {
			t.Run(name, func(t *testing.T) {
				p := consumed(t, ctx, 0)
				if name == "closed" {
					closeLater(t, p.s)
				}
				_, err := p.s.schema(soon(t))
				assert.Error(t, err)
				assert.Equal(t, int(syscall.ECANCELED), p.begin())
				p.Release()
				assert.Zero(t, p.Calls())
				n, err := p.all()
				assert.Zero(t, n)
				if name == "context" {
					assert.ErrorIs(t, err, context.Canceled)
				} else {
					assert.ErrorIs(t, err, cdevice.ErrReleased)
				}
			})
		}
	})
	t.Run("inside the loop over its batches", func(t *testing.T) {
		p := consumed(t, soon(t), 3)
		require.Zero(t, p.begin())
		p.send(3)
		p.InRequest(cpeer.InNothing)
		n := 0
		var last error
		for batch, err := range p.s.All() {
			if last = err; err != nil {
				break
			}
			p.InRequest(cpeer.InRelease) // in cancel
			p.s.close()
			assert.EqualValues(t, 2, viewOf(t, batch).NumRows(), "the batch stays")
			n++
		}
		assert.Equal(t, 1, n)
		assert.ErrorIs(t, last, cdevice.ErrReleased)
	})
}
