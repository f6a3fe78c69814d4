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
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// lateContext is a context that reports its end late: functions of [context.AfterFunc] do not run
// before tell, as if their goroutines had no processor until then.
type lateContext struct {
	context.Context
	mu       sync.Mutex
	starting []func()
}

// Value hides the context inside, which would start the functions itself.
func (*lateContext) Value(any) any { return nil }

// AfterFunc is the method that package context calls on contexts that are not its own.
func (c *lateContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting = append(c.starting, f)
	return func() bool { return true }
}

func (c *lateContext) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.starting {
		f()
	}
	c.starting = nil
}

// TestAsyncStreamContext is about the context of ImportAsync.
func TestAsyncStreamContext(t *testing.T) {
	t.Run("ends the stream", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		p := begun(t, ctx, 0, 1)
		p.take(1)
		result := make(chan error, 1)
		go func() {
			_, err := p.all()
			result <- err
		}()
		cancel()
		assert.ErrorIs(t, <-result, context.Canceled, "a loop that waits ends")
		require.NoError(t, p.WaitCancelled())
		p.send(1)
		p.End()
		p.Release()
		_, err := p.all()
		assert.ErrorIs(t, err, context.Canceled)
	})
	// The last batch was taken, and the producer has announced the end: the context ends nothing.
	t.Run("is no error of a stream that is over", func(t *testing.T) {
		inner, cancel := context.WithCancel(background)
		defer cancel()
		ctx := &lateContext{Context: inner}
		p := begun(t, ctx, 1, 1)
		p.End()
		p.take(1)
		cancel()
		n, err := p.all()
		assert.Zero(t, n)
		assert.NoError(t, err)
		ctx.tell()
		p.Release()
		assert.Zero(t, p.Calls().Cancels)
	})
	// The end of ctx ends a stream even if its producer has done all that it does.
	t.Run("ends a stream whose producer is gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		p := begun(t, ctx, 3, 3)
		p.End()
		p.Release()
		cancel()
		within.Eventually(t, "what was ready is dropped", func() bool {
			return p.tasks[0].Extracted()+p.tasks[1].Extracted()+p.tasks[2].Extracted() == 3
		})
		n, err := p.all()
		assert.Zero(t, n)
		assert.ErrorIs(t, err, context.Canceled)
	})
	// The error of a failed task is returned, even if the context also ends the wait.
	t.Run("ends while a task fails", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		p := begun(t, ctx, 1, 0)
		require.Zero(t, p.Send(p.task(errno.Code(syscall.ENOSPC)), nil))
		result := make(chan error, 1)
		go func() { _, err := p.all(); result <- err }()
		require.NoError(t, p.WaitRequested(2))
		cancel()
		assert.ErrorIs(t, <-result, syscall.ENOSPC)
		require.NoError(t, p.WaitCancelled())
		p.Release()
	})
	t.Run("no batch once it is done", func(t *testing.T) {
		inner, cancel := context.WithCancel(background)
		defer cancel()
		ctx := &lateContext{Context: inner}
		p := begun(t, ctx, 4, 4)
		p.take(1)
		cancel()
		n, err := p.all()
		assert.Zero(t, n, "three were ready")
		assert.ErrorIs(t, err, context.Canceled)
		assert.EqualError(t, err, "cdevice: read: context canceled")
		within.Eventually(t, "what was ready is dropped", func() bool { return p.Calls().Dropped == 3 })
		assert.EqualValues(t, 1, p.Calls().Cancels)
		ctx.tell()
		n, again := p.all()
		assert.Zero(t, n)
		assert.Equal(t, err, again)
		p.Release()
	})
	// While one goroutine ends the stream, and is still in the producer's cancel, another one
	// finds batches that are ready, and takes none.
	t.Run("no batch while the stream is being stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		p := begun(t, ctx, 2, 2)
		p.InRequest(cpeer.InWait)
		cancel()
		require.NoError(t, p.WaitWaiting()) // in cancel
		n, err := p.all()
		assert.Zero(t, n)
		assert.ErrorIs(t, err, context.Canceled)
		p.Let()
		p.Release()
	})
	// A context is forgotten with its stream.
	t.Run("is forgotten at the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		p := begun(t, ctx, 0, 0)
		p.End()
		p.Release()
		n, err := p.all()
		assert.Zero(t, n)
		assert.NoError(t, err)
		p.s.close()
		cancel()
		assert.NoError(t, p.s.r.Err())
	})
}

// TestAsyncStreamClose is about Close of a stream that was imported.
func TestAsyncStreamClose(t *testing.T) {
	t.Run("cancels once, drops what is ready and what comes", func(t *testing.T) {
		p := begun(t, soon(t), 4, 2)
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
		p := newGoProducer(t, background)
		cancelled := make(chan struct{})
		p.cancel = func() { close(cancelled) }
		require.Zero(t, p.begin(t))
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { <-cancelled; return 0 }))
		closed := make(chan struct{})
		go func() { p.s.close(); close(closed) }()
		<-cancelled
		bridge.CallHandlerRelease(p.handler)
		<-closed
	})
	// A producer that has said the end is not called any more: not to cancel either.
	t.Run("does not cancel after the end", func(t *testing.T) {
		p := newGoProducer(t, background)
		var cancels atomic.Int64
		p.cancel = func() { cancels.Add(1) }
		require.Zero(t, p.begin(t))
		dropped := make(chan struct{}) // which comes after the cancel, where there is one
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { close(dropped); return 0 }))
		require.Zero(t, bridge.CallOnNextTask(p.handler, nil, nil))
		closed := make(chan struct{})
		go func() { p.s.close(); close(closed) }()
		<-dropped
		assert.Zero(t, cancels.Load())
		bridge.CallHandlerRelease(p.handler)
		<-closed
	})
	// When Close returns, nothing is left, even if another goroutine ended the stream.
	t.Run("waits for what another goroutine drops", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		p := newGoProducer(t, ctx)
		require.Zero(t, p.begin(t))
		var extracted atomic.Int64
		inside, let := make(chan struct{}), make(chan struct{})
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { close(inside); <-let; extracted.Add(1); return 0 }))
		require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { extracted.Add(1); return 0 }))
		cancel()
		<-inside
		assert.Zero(t, bridge.CallOnNextTask(p.handler, nil, nil))
		bridge.CallHandlerRelease(p.handler)
		var closed sync.WaitGroup
		for range 2 {
			closed.Go(func() {
				p.s.close()
				assert.EqualValues(t, 2, extracted.Load())
			})
		}
		close(let)
		closed.Wait()
	})
	t.Run("a closed stream refuses the schema", func(t *testing.T) {
		for name, ctx := range map[string]context.Context{"closed": background, "context": canceled} {
			t.Run(name, func(t *testing.T) {
				p := consumed(t, ctx, 0)
				if name == "closed" {
					closeLater(t, p.s)
				}
				_, err := p.s.schema(soon(t))
				assert.Error(t, err)
				assert.Equal(t, errno.Code(syscall.ECANCELED), p.begin())
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
		p := begun(t, soon(t), 3, 3)
		p.InRequest(cpeer.InNothing)
		n := 0
		var last error
		var kept *cdevice.RecordBatch
		for batch, err := range p.s.All() {
			if last = err; err != nil {
				break
			}
			p.InRequest(cpeer.InRelease) // in cancel
			p.s.close()
			assert.EqualValues(t, 2, viewOf(t, batch).NumRows(), "the batch stays")
			kept = batch
			kept.Retain()
			n++
		}
		assert.EqualValues(t, 2, viewOf(t, kept).NumRows(), "and outlives its stream")
		kept.Release()
		assert.Equal(t, 1, n)
		assert.ErrorIs(t, last, cdevice.ErrReleased)
	})
}
