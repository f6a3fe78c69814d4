package cdevice_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// TestAsyncStreamContext is about the context of ImportAsync.
func TestAsyncStreamContext(t *testing.T) {
	t.Run("ends the stream", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		p := consumed(t, ctx, 0)
		require.Zero(t, p.begin())
		p.send(1)
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
	t.Run("changes nothing after the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		p := consumed(t, ctx, 0)
		require.Zero(t, p.begin())
		p.End()
		cancel()
		_, err := p.s.schema(soon(t))
		require.NoError(t, err)
		p.Release()
		_, err = p.all()
		assert.NoError(t, err)
		assert.Zero(t, p.Calls().Cancels)
	})
	// The last batch was taken, and the producer has announced the end: the context ends nothing.
	t.Run("is no error of a stream that is over", func(t *testing.T) {
		inner, cancel := context.WithCancel(background)
		defer cancel()
		ctx := &lateContext{Context: inner}
		p := consumed(t, ctx, 1)
		require.Zero(t, p.begin())
		p.send(1)
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
		p := consumed(t, ctx, 3)
		require.Zero(t, p.begin())
		p.send(3)
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
		p := consumed(t, ctx, 1)
		require.Zero(t, p.begin())
		require.Zero(t, p.Send(p.task(int(syscall.ENOSPC)), nil))
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
		p := consumed(t, ctx, 4)
		require.Zero(t, p.begin())
		p.send(4)
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
		p := consumed(t, ctx, 2)
		require.Zero(t, p.begin())
		p.send(2)
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
		p := consumed(t, ctx, 0)
		require.Zero(t, p.begin())
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
