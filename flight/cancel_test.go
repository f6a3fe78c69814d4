package flight_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// The end of the client's context ends Next, with the code and the error of the context, and the
// server's source is released although it is waiting.
func TestGPUContextEndsNext(t *testing.T) {
	gpu := machine(t)
	for want, row := range map[error]struct {
		code  codes.Code
		limit time.Duration
	}{
		context.Canceled:         {codes.Canceled, time.Hour},
		context.DeadlineExceeded: {codes.DeadlineExceeded, 200 * time.Millisecond},
	} {
		t.Run(want.Error(), func(t *testing.T) {
			var stopped atomic.Int64
			client := serve(t, serving(stuck(t, &stopped)), flight.ServerOptions()...)
			ctx, cancel := context.WithTimeout(background, row.limit)
			defer cancel()
			r, err := flight.DoGet(ctx, client, ticket(), as[flight.GetOption](onGPU(t, gpu).opts)...)
			require.NoError(t, err)
			defer r.Release()
			require.True(t, r.Next())
			if row.code == codes.Canceled {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			within.Seconds(t, "Next", func() error { assert.False(t, r.Next()); return nil })
			assert.Equal(t, row.code, status.Code(r.Err()), "%v", r.Err())
			assert.ErrorIs(t, r.Err(), want)
			within.Eventually(t, "the end of the server's source", func() bool { return stopped.Load() == 1 })
		})
	}
}

// Messages that have arrived are not read after the end of the context: each may take long to decompress.
func TestContextEndsBeforeMessagesThatHaveArrived(t *testing.T) {
	for _, prefetch := range []int{0, 2} {
		cdevicetest.CheckLeaks(t)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		recs := slices.Repeat([]arrow.RecordBatch{numbers(t, 0, 4)}, 100)
		arrived := &arrivedStream{tape{marshal(t, record(t, recs)), 100}, ctx}
		r, _, err := flight.Receive(arrived, flight.WithPrefetch(prefetch))
		require.NoError(t, err)
		defer r.Release()
		require.True(t, r.Next())
		cancel()
		late := 0
		for r.Next() {
			late++
		}
		assert.LessOrEqual(t, late, prefetch+1, "batches received before the end")
		assert.NotEmpty(t, arrived.messages, "messages that were not read")
		assert.ErrorIs(t, r.Err(), context.Canceled)
		assert.Equal(t, codes.Canceled, status.Code(r.Err()))
	}
}

// arrivedStream has received all messages, and returns them even after the end of its context, as grpc does.
type arrivedStream struct {
	tape
	ctx context.Context
}

func (s *arrivedStream) Context() context.Context { return s.ctx }

// overdue is a context whose deadline has passed once ended is set, and that is not done yet.
type overdue struct {
	context.Context
	ended atomic.Bool
}

func (c *overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), c.ended.Load() }

// A call that the server ends as canceled at the deadline ends with the error of the deadline: the server may see that
// before the client's context does.
func TestDeadlineThatCancels(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ctx := &overdue{Context: background}
	canceled := func(r *cdevice.RecordReader, err error) error {
		if err == nil && r.Next() {
			r.Release()
			ctx.ended.Store(true)
			err = status.Error(codes.Canceled, "context canceled")
		}
		return err
	}
	batch := func() *cdevice.RecordReader { return readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 4)) }
	ends := func(stream flight.Stream) error {
		r, _, err := flight.Receive(stream, flight.WithPrefetch(0))
		return canceled(r, err)
	}
	client := serve(t, &server{
		get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
			r := batch()
			defer r.Release()
			return errors.Join(flight.Send(stream, r), canceled(batch(), nil))
		},
		put:      func(stream arrowflight.FlightService_DoPutServer) error { return ends(stream) },
		exchange: func(stream arrowflight.FlightService_DoExchangeServer) error { return ends(stream) },
	}, flight.ServerOptions()...)
	for name, call := range map[string]func(*cdevice.RecordReader) error{
		"DoGet": func(*cdevice.RecordReader) error {
			r, err := flight.DoGet(ctx, client, ticket())
			if err == nil {
				_, err = collect(r)
			}
			return err
		},
		"DoPut": func(r *cdevice.RecordReader) error { return flight.DoPut(ctx, client, descriptor(), r) },
		"DoExchange": func(r *cdevice.RecordReader) error {
			_, err := flight.DoExchange(ctx, client, descriptor(), r)
			return err
		},
	} {
		ctx.ended.Store(false)
		r := stuck(t, new(atomic.Int64))()
		err := call(r)
		r.Release()
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%s: %v", name, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded, name)
	}
}

// Release before the end cancels the call, while Next is waiting on another goroutine or not, and
// before any Next.
func TestGPUReleaseCancels(t *testing.T) {
	gpu := machine(t)
	for name, use := range map[string]func(*cdevice.RecordReader){
		"unread": func(*cdevice.RecordReader) {},
		"read":   func(r *cdevice.RecordReader) { assert.True(t, r.Next()) },
		"waiting": func(r *cdevice.RecordReader) {
			assert.True(t, r.Next())
			go r.Next()
			for range 1000 {
				runtime.Gosched()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stopped atomic.Int64
			client := serve(t, serving(stuck(t, &stopped)), flight.ServerOptions()...)
			r, err := flight.DoGet(background, client, ticket(), as[flight.GetOption](onGPU(t, gpu).opts)...)
			require.NoError(t, err)
			use(r)
			within.Seconds(t, "Release", func() error { r.Release(); return nil })
			within.Eventually(t, "the end of the server's source", func() bool { return stopped.Load() == 1 })
			within.Seconds(t, "Close", func() error { return r.Close(background) })
		})
	}
}

// DoPut ends with its context, wherever it waits, and with the error of its reader.
func TestDoPutEnds(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	received := make(chan error, 10)
	client := serve(t, &server{put: func(stream arrowflight.FlightService_DoPutServer) error {
		r, _, err := flight.Receive(stream)
		if err == nil {
			_, err = collect(r)
		}
		received <- err
		<-stream.Context().Done()
		return stream.Context().Err()
	}}, flight.ServerOptions()...)
	var stopped atomic.Int64
	t.Run("the source waits", func(t *testing.T) {
		r := stuck(t, &stopped)()
		defer r.Release()
		within.Context(t, "DoPut", func(ctx context.Context) error { return flight.DoPut(ctx, client, descriptor(), r) })
		assert.Error(t, <-received)
	})
	t.Run("the server waits", func(t *testing.T) {
		r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 4))
		defer r.Release()
		within.Context(t, "DoPut", func(ctx context.Context) error { return flight.DoPut(ctx, client, descriptor(), r) })
		assert.NoError(t, <-received)
	})
	t.Run("a function of the program waits", func(t *testing.T) {
		let := make(chan struct{})
		defer close(let)
		echoes := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
		r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 4))
		defer r.Release()
		wait := flight.WithPutResults(func(*arrowflight.PutResult) error { <-let; return nil })
		within.Context(t, "DoPut", func(ctx context.Context) error { return flight.DoPut(ctx, echoes, descriptor(), r, wait) })
	})
	t.Run("the source fails", func(t *testing.T) {
		r := failing(t, 2, errors.New("no more disk"))
		defer r.Release()
		within.Seconds(t, "DoPut", func() error {
			assert.ErrorContains(t, flight.DoPut(background, client, descriptor(), r), "no more disk")
			return nil
		})
		assert.Error(t, <-received, "the server must not take a part for all")
	})
}

// The answers of an exchange end with the error of the source, even if that is one of a context other than the call's.
func TestExchangeEndsWithItsSource(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	for _, row := range []struct {
		err  error
		code codes.Code
	}{
		{status.Error(codes.DataLoss, "no more disk"), codes.DataLoss},
		{context.Canceled, codes.Canceled},
		{fmt.Errorf("upstream: %w", context.Canceled), codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		r := failing(t, 2, row.err)
		answers, err := flight.DoExchange(t.Context(), client, descriptor(), r)
		r.Release()
		within.Seconds(t, "the end of the answers", func() error {
			if err == nil { // else it came before the schema
				_, err = collect(answers)
			}
			return nil
		})
		assert.ErrorIs(t, err, row.err)
		assert.ErrorContains(t, err, row.err.Error())
		assert.Equal(t, row.code, status.Code(err))
	}
}

// The last Release of the answers ends the sending.
func TestReleaseEndsTheExchange(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	var stopped atomic.Int64
	waiting := stuck(t, &stopped)()
	answers, err := flight.DoExchange(background, client, descriptor(), waiting)
	waiting.Release()
	require.NoError(t, err)
	require.True(t, answers.Next())
	answers.Release()
	within.Eventually(t, "the end of the source", func() bool { return stopped.Load() == 1 })
}

// longLived is a context that never ends, and counts the functions that wait for its end.
type longLived struct {
	context.Context
	done    chan struct{}
	waiting atomic.Int64
}

func (c *longLived) Done() <-chan struct{} { return c.done }

func (c *longLived) Err() error { return nil }

func (c *longLived) AfterFunc(func()) func() bool {
	c.waiting.Add(1)
	return sync.OnceValue(func() bool { c.waiting.Add(-1); return true })
}

// Nothing of a call waits for the end of its context any more once the call has ended, or its reader was released.
func TestCallsLeaveTheirContext(t *testing.T) {
	var open atomic.Int64
	s, info := parts(t, 4, &open)
	s.exchange = echo(t, host(t), nil).exchange
	client := serve(t, s, flight.ServerOptions()...)
	dial := dialing(client)
	for name, call := range map[string]func(context.Context) (*cdevice.RecordReader, error){
		"DoGet": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGet(ctx, client, info.Endpoint[0].Ticket)
		},
		"DoGetEndpoints": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGetEndpoints(ctx, info, dial)
		},
		"DoGet, not ahead": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGet(ctx, client, info.Endpoint[0].Ticket, flight.WithPrefetch(0))
		},
		"DoGetEndpoints, not ahead": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGetEndpoints(ctx, info, dial, flight.WithPrefetch(0))
		},
		"DoGetEndpoints of a bad schema": func(ctx context.Context) (*cdevice.RecordReader, error) {
			_, err := flight.DoGetEndpoints(ctx, &arrowflight.FlightInfo{Schema: []byte("bad")}, dial)
			assert.Error(t, err)
			return nil, nil
		},
		"DoExchange": func(ctx context.Context) (*cdevice.RecordReader, error) {
			r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 4), numbers(t, 4, 4))
			defer r.Release()
			return flight.DoExchange(ctx, client, descriptor(), r)
		},
	} {
		for batches := range 3 {
			t.Run(name, func(t *testing.T) {
				ctx := &longLived{Context: background, done: make(chan struct{})}
				r, err := call(ctx)
				require.NoError(t, err)
				if r != nil {
					for range batches {
						require.True(t, r.Next(), r.Err())
					}
					r.Release()
				}
				within.Eventually(t, "the end of what waits", func() bool { return ctx.waiting.Load() == 0 })
			})
		}
	}
}
