package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Each test here is a rule for consumers: ours faces a producer written in C, whose calls
// come from threads that Go has never seen.

func TestAsyncStreamSchemaAndMetadata(t *testing.T) {
	p := consumed(t, soon(t), 0)
	_, err := p.s.Reader(canceled)
	assert.ErrorIs(t, err, context.Canceled, "it waits")

	want := arrow.NewMetadata([]string{"rows"}, []string{"many"})
	encoded, err := schema.AppendMetadata(nil, "", want)
	require.NoError(t, err)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&encoded[0])
	p.Struct().AdditionalMetadata = addressOf(&encoded[0])
	require.Zero(t, p.begin())
	r, err := p.s.reader(soon(t))
	require.NoError(t, err)
	assert.True(t, p.schema.Equal(r.Schema()))
	assert.True(t, want.Equal(r.Metadata()))
	assert.Equal(t, device.CPU, r.DeviceType())

	require.Zero(t, p.Send(p.task(0), encoded))
	p.send(1)
	p.End()
	n := 0
	for batch, err := range p.s.All() {
		require.NoError(t, err)
		assert.Equal(t, n == 0, want.Equal(batch.Metadata()), "of this batch only")
		n++
	}
	p.Release()
	again, err := p.s.reader(soon(t))
	require.NoError(t, err)
	assert.Same(t, r, again)
}

// closeLater closes the stream on goroutines of their own, which end with the test; it
// returns when the stream knows.
func closeLater(t *testing.T, s *asyncStream) {
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(s.close)
	}
	t.Cleanup(wg.Wait)
	for {
		if _, err := s.reader(soon(t)); errors.Is(err, cdevice.ErrReleased) {
			return
		}
	}
}

// TestAsyncStreamRequests is about how many batches our consumer requests.
func TestAsyncStreamRequests(t *testing.T) {
	t.Run("the queue, and then one per batch", func(t *testing.T) {
		p := begun(t, soon(t), 3, 0)
		assert.Equal(t, cpeer.Calls{Requests: 1, Requested: 3, LastN: 3}, p.Calls())
		p.send(3)
		assert.EqualValues(t, 3, p.Calls().Requested, "slow use is back-pressure")
		p.take(1)
		require.NoError(t, p.WaitRequested(4))
		p.take(1)
		require.NoError(t, p.WaitRequested(5))
		assert.Equal(t, cpeer.Calls{Requests: 3, Requested: 5, LastN: 1, Extracted: 2}, p.Calls(), "and each batch is released")
		p.send(2)
		p.End()
		n, err := p.all() // where the first loop was left
		require.NoError(t, err)
		assert.Equal(t, 3, n)
		within.Eventually(t, "goroutines that request end", func() bool { return cdevice.ReadStats().Goroutines == 0 })
		assert.EqualValues(t, 5, p.Calls().Requested, "nothing is requested after the end")
		p.Release()
		assert.Zero(t, p.Calls().Cancels)
	})
	t.Run("on a goroutine that ends with the stream", func(t *testing.T) {
		for name, end := range map[string]func(p *peer, cancel func()){
			"the producer's end": func(p *peer, _ func()) { p.End() },
			"its error":          func(p *peer, _ func()) { p.Error(5, "no", nil) },
			"its release":        func(p *peer, _ func()) { p.Release() },
			"the context's end":  func(_ *peer, cancel func()) { cancel() },
		} {
			t.Run(name, func(t *testing.T) { // the handler is released before the next one, and the context ends after that
				ctx, cancel := context.WithCancel(soon(t))
				t.Cleanup(cancel)
				before := cdevice.ReadStats().Goroutines
				p := begun(t, ctx, 1, 1)
				p.take(1)
				require.NoError(t, p.WaitRequested(2))
				assert.Equal(t, before+1, cdevice.ReadStats().Goroutines)
				end(p, cancel)
				within.Eventually(t, "the goroutine ends", func() bool { return cdevice.ReadStats().Goroutines == before })
			})
		}
	})
	t.Run("four without an option", func(t *testing.T) {
		p := begun(t, soon(t), 0, 0)
		assert.EqualValues(t, 4, p.Calls().Requested)
	})
	t.Run("their sum fits an int64", func(t *testing.T) {
		p := begun(t, soon(t), 1<<20, 2)
		p.take(2)
		require.NoError(t, p.WaitRequested(1<<20+2))
	})
}

// TestAsyncStreamErrors is about the error that a stream ends with.
func TestAsyncStreamErrors(t *testing.T) {
	t.Run("the producer's, after batches that are ready", func(t *testing.T) {
		md := arrow.NewMetadata([]string{"retry"}, []string{"no"})
		encoded, err := schema.AppendMetadata(nil, "", md)
		require.NoError(t, err)
		for name, row := range map[string]struct {
			before   bool // on_schema
			code     int
			message  string
			metadata []byte
			want     []error
			text     string
		}{
			"with all":           {code: errno.Code(syscall.ETIMEDOUT), message: "disk on fire", metadata: encoded, want: []error{syscall.ETIMEDOUT, context.DeadlineExceeded}, text: fmt.Sprintf("on_error: %v (errno %d): disk on fire", syscall.ETIMEDOUT, errno.Code(syscall.ETIMEDOUT))},
			"NULL message":       {code: 22, want: []error{arrow.ErrInvalid}, text: "on_error: invalid argument (errno 22)"},
			"negative code":      {code: -5, message: "x", text: "on_error: code -5: x"},
			"code 0":             {code: 0, message: "x", text: "on_error: code 0: x"},
			"not UTF-8":          {code: 5, message: "a\xffb", want: []error{syscall.EIO}, text: "a\ufffdb"},
			"malformed metadata": {code: 5, message: "x", metadata: []byte{1, 0, 0, 0, 255, 255, 255, 255}, text: "errno 5): x"},
			"before on_schema":   {before: true, code: 5, message: "early", metadata: encoded, text: "errno 5): early"},
		} {
			t.Run(name, func(t *testing.T) {
				p := consumed(t, soon(t), 0)
				ready := 0
				if !row.before {
					require.Zero(t, p.begin())
					p.send(2)
					ready = 2
				}
				before := p.Calls()
				p.Error(row.code, row.message, row.metadata)
				p.Release()
				n, err := p.all()
				assert.Equal(t, ready, n)
				var async *cdevice.ProducerError
				require.ErrorAs(t, err, &async)
				assert.Equal(t, row.code, async.Code)
				assert.ErrorContains(t, err, row.text)
				assert.Equal(t, len(row.metadata) == len(encoded), md.Equal(async.Metadata))
				for _, want := range row.want {
					assert.ErrorIs(t, err, want)
				}
				_, again := p.all()
				assert.Equal(t, err, again)
				calls := p.Calls()
				assert.Equal(t, before.Requests, calls.Requests, "no call of the producer after on_error")
				assert.Zero(t, calls.Cancels)
				if row.before {
					_, schemaErr := p.s.schema(soon(t))
					assert.Equal(t, err, schemaErr)
				}
			})
		}
	})
	t.Run("released in the middle", func(t *testing.T) {
		for _, begin := range []bool{false, true} {
			p := consumed(t, soon(t), 0)
			if begin {
				require.Zero(t, p.begin())
			}
			p.Release()
			_, err := p.all()
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			_, err = p.s.schema(soon(t))
			assert.Equal(t, begin, err == nil)
			assert.Zero(t, p.Calls().Cancels)
		}
	})
	// The first error counts.
	t.Run("the first is kept", func(t *testing.T) {
		p := begun(t, soon(t), 0, 0)
		p.Error(5, "first", nil)
		p.Error(22, "second", nil)
		_, err := p.all()
		assert.ErrorContains(t, err, "first")
		p.Release()
		_, err = p.all()
		assert.ErrorContains(t, err, "first", "again")
		p.s.close()
		assert.ErrorContains(t, p.s.r.Err(), "first", "after Close too")
		assert.Zero(t, p.Calls().Cancels, "a stream that has ended is not cancelled")
	})
}

// TestAsyncStreamRelease is about release of a handler of ours.
func TestAsyncStreamRelease(t *testing.T) {
	// The last call of the producer is over before its last callback returns: it may be gone then.
	t.Run("waits for a call under way", func(t *testing.T) {
		p := begun(t, soon(t), 1, 1)
		p.InRequest(cpeer.InWait)
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = p.all()
		}()
		require.NoError(t, p.WaitWaiting())
		released := make(chan struct{})
		go func() {
			p.Release()
			close(released)
		}()
		_, err := p.s.schema(soon(t))
		require.NoError(t, err)
		for range 1000 {
			select {
			case <-released:
				t.Fatal("release has returned")
			default:
				runtime.Gosched()
			}
		}
		p.InRequest(cpeer.InNothing)
		p.Let()
		<-released
		<-read
	})
	// A producer must not call back from inside request, on the same thread; if it does, no call
	// hangs.
	t.Run("inside request", func(t *testing.T) {
		for name, in := range map[string]cpeer.In{"release": cpeer.InRelease, "on_error": cpeer.InError} {
			t.Run(name, func(t *testing.T) {
				p := begun(t, soon(t), 2, 2)
				p.InRequest(in)
				n, err := p.all()
				assert.Equal(t, 2, n)
				assert.Equal(t, in == cpeer.InRelease, errors.Is(err, io.ErrUnexpectedEOF))
				require.NoError(t, p.WaitReturned()) // on_error and release can still be running
				assert.Zero(t, p.handler.Release)
			})
		}
	})
	t.Run("inside cancel", func(t *testing.T) {
		p := begun(t, soon(t), 0, 1)
		p.InRequest(cpeer.InRelease)
		p.s.close()
		assert.EqualValues(t, 1, p.Calls().Cancels)
	})
	t.Run("by the owner of a handler that no producer got", func(t *testing.T) {
		settles(t)
		handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s := importAsync(t, background, handler, 0)
		assert.EqualValues(t, 1, cdevice.ReadStats().AsyncStreams)
		cdevice.ReleaseStruct(handler)
		cdevice.ReleaseStruct(handler)
		cdevice.ReleaseStruct((*cdevice.CArrowAsyncDeviceStreamHandler)(nil))
		s.close()
	})
	t.Run("the handler is pinned until then", func(t *testing.T) {
		settles(t)
		handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
		addr := addressOf(handler)
		require.False(t, cpeer.IsPinned(addr))
		importAsync(t, background, handler, 0) // and forgotten
		for range 3 {
			runtime.GC()
		}
		assert.True(t, cpeer.IsPinned(addr))
		assert.Same(t, handler, cdevice.AsyncDeviceStreamHandlerFromPtr(addr))
		cdevice.ReleaseStruct(handler)
		assert.False(t, cpeer.IsPinned(addr))
	})
	t.Run("of a handler in C memory", func(t *testing.T) {
		settles(t)
		c := cpeer.NewConsumer(cpeer.Behaviour{}) // for its memory
		defer c.Free()
		s := importAsync(t, soon(t), publicHandler(c), 0)
		defer s.close()
		rec := twoColumns(t)
		_, err := cdevice.ExportAsync(background, repeated(t, rec, 3), publicHandler(c))
		require.NoError(t, err)
		n := 0
		for batch, err := range s.All() {
			require.NoError(t, err)
			assert.True(t, sameRecord(t, rec, batch))
			n++
		}
		assert.Equal(t, 3, n)
	})
}
