package cdevice_test

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Rules of the specification that no other test is named after.

// A nil context is an error that names it, and the handler is released: ExportAsync owned it.
func TestAsyncProducerRefusesANilContext(t *testing.T) {
	settles(t)
	c := cpeer.NewConsumer(cpeer.Behaviour{})
	defer c.Free()
	//lint:ignore SA1012 this is the mistake
	err := cdevice.ExportAsync(nil, repeated(t, twoColumns(t), 1), abi.As[cdevice.CArrowAsyncDeviceStreamHandler](c.Handler()))
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.EqualError(t, err, "cdevice: export: ctx = nil, want a context: invalid")
	assert.Equal(t, []cpeer.Event{cpeer.Release}, c.Events())
}

// TestAsyncStreamCalls is about the threads of a stream's calls.
func TestAsyncStreamCalls(t *testing.T) {
	// on_error and release must not call the producer: even if batches are ready, requested, or the stream is closed meanwhile.
	t.Run("none inside on_error and release", func(t *testing.T) {
		for ready := range 4 {
			for name, end := range map[string]func(p *peer){
				"on_error": func(p *peer) { p.Error(int(syscall.EIO), "x", nil) },
				"the end":  func(p *peer) { p.End() },
				"release":  func(*peer) {},
			} {
				t.Run(fmt.Sprint(name, " with ", ready), func(t *testing.T) {
					p := consumed(t, soon(t), 3)
					require.Zero(t, p.begin())
					p.send(ready)
					var closed sync.WaitGroup
					if ready == 2 {
						closed.Go(p.s.close)
						require.NoError(t, p.WaitCancelled())
					}
					end(p)
					p.Release()
					closed.Wait()
					_, _ = p.all()
					assert.EqualValues(t, 1, p.Calls().Requests, "nor later")
					assert.Zero(t, p.Calls().Forbidden)
				})
			}
		}
	})
	// A producer must not call on_next_task from several threads at once. One that does loses nothing.
	t.Run("tasks from many threads at once", func(t *testing.T) {
		const requested = 32
		for name, sent := range map[string]int{"as requested": requested, "more than requested": 2 * requested} {
			t.Run(name, func(t *testing.T) {
				for range 20 {
					p := consumed(t, soon(t), requested)
					require.Zero(t, p.begin())
					for range sent {
						p.task(0)
					}
					taken := make(chan int)
					go func() {
						n, _ := p.all()
						taken <- n
					}()
					refused := p.SendAtOnce(p.tasks)
					p.End()
					p.Release()
					assert.Equal(t, sent-refused, <-taken)
					if sent == requested {
						assert.Zero(t, refused)
					}
					calls := p.Calls()
					assert.Zero(t, calls.Twice)
					assert.EqualValues(t, sent-refused, calls.Extracted)
					assert.EqualValues(t, refused, calls.Dropped)
				}
			})
		}
	})
	t.Run("one call at a time", func(t *testing.T) {
		p := consumed(t, soon(t), 0)
		p.InRequest(cpeer.InWait)
		begun := make(chan struct{})
		go func() {
			assert.Zero(t, p.begin())
			close(begun)
		}()
		require.NoError(t, p.WaitWaiting()) // in the first request
		go p.s.close()
		_, err := p.all() // until it is closed
		assert.ErrorIs(t, err, cdevice.ErrReleased)
		for range 1000 {
			runtime.Gosched()
		}
		p.InRequest(cpeer.InNothing)
		p.Let()
		<-begun
		require.NoError(t, p.WaitCancelled())
		assert.Zero(t, p.Calls().Overlaps)
	})
}
