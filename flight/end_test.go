package flight_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// source is a reader of the CPU of a function that makes batch i, or an error. It waits where the
// function does, until the reader ends.
func source(t testing.TB, next func(ctx context.Context, i int) (arrow.RecordBatch, error), stop func()) *cdevice.RecordReader {
	i := -1
	r, err := cdevice.NewRecordReaderFunc(background, schema, device.CPU, func(ctx context.Context) (*cdevice.RecordBatch, error) {
		i++
		rec, err := next(ctx, i)
		if err != nil {
			return nil, err
		}
		defer rec.Release()
		return cdevice.WrapRecordBatch(rec, device.CPUDevice())
	}, stop)
	require.NoError(t, err)
	return r
}

// serving is a server that sends a new source with each DoGet.
func serving(open func() *cdevice.RecordReader) *server {
	return &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := open()
		defer r.Release()
		return flight.Send(stream, r)
	}}
}

// stuck is a source of one batch that then waits, and reports when it is stopped.
func stuck(t testing.TB, stopped *atomic.Int64) func() *cdevice.RecordReader {
	return func() *cdevice.RecordReader {
		return source(t, func(ctx context.Context, i int) (arrow.RecordBatch, error) {
			if i == 0 {
				return numbers(t, 0, 4), nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, func() { stopped.Add(1) })
	}
}

// The end of the client's context ends Next, with the code and the error of the context, and the
// server's source is released although it is waiting.
func TestGPUContextEndsNext(t *testing.T) {
	gpu := machine(t)
	for name, end := range map[string]struct {
		code  codes.Code
		is    error
		start func() (context.Context, func())
	}{
		"cancel":   {codes.Canceled, context.Canceled, func() (context.Context, func()) { return context.WithCancel(background) }},
		"deadline": {codes.DeadlineExceeded, context.DeadlineExceeded, func() (context.Context, func()) { return context.WithTimeout(background, 200*time.Millisecond) }},
	} {
		t.Run(name, func(t *testing.T) {
			var stopped atomic.Int64
			client := serve(t, serving(stuck(t, &stopped)), flight.ServerOptions()...)
			ctx, cancel := end.start()
			defer cancel()
			r, err := flight.DoGet(ctx, client, ticket(), as[flight.GetOption](onGPU(t, gpu).opts)...)
			require.NoError(t, err)
			defer r.Release()
			require.True(t, r.Next())
			if end.code == codes.Canceled {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			within.Seconds(t, "Next", func() error { assert.False(t, r.Next()); return nil })
			assert.Equal(t, end.code, status.Code(r.Err()), "%v", r.Err())
			assert.ErrorIs(t, r.Err(), end.is)
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

// The call is cancelled when the deadline ends; which of the two grpc sees first does not matter.
func TestDeadlineThatCancels(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var stopped atomic.Int64
	client := serve(t, serving(stuck(t, &stopped)), flight.ServerOptions()...)
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	r, err := flight.DoGet(ctx, cancelled{client}, ticket())
	require.NoError(t, err)
	defer r.Release()
	for r.Next() {
	}
	assert.Equal(t, codes.DeadlineExceeded, status.Code(r.Err()), "%v", r.Err())
	assert.ErrorIs(t, r.Err(), context.DeadlineExceeded)
}

// cancelled is a client whose streams end with Canceled.
type cancelled struct{ arrowflight.Client }

func (c cancelled) DoGet(ctx context.Context, t *arrowflight.Ticket, opts ...grpc.CallOption) (arrowflight.FlightService_DoGetClient, error) {
	stream, err := c.Client.DoGet(ctx, t, opts...)
	return cancelledStream{stream}, err
}

type cancelledStream struct {
	arrowflight.FlightService_DoGetClient
}

func (s cancelledStream) RecvMsg(m any) error {
	if err := s.FlightService_DoGetClient.RecvMsg(m); err != nil {
		return status.Error(codes.Canceled, "context canceled")
	}
	return nil
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

// An error of the server's reader arrives with its text and its code.
func TestErrorsOfTheServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, row := range []struct {
		err  error
		code codes.Code
		is   error
	}{
		{errors.New("the disk is gone"), codes.Unknown, nil},
		{status.Error(codes.PermissionDenied, "the disk is gone"), codes.PermissionDenied, nil},
		{fmt.Errorf("reading: %w", status.Error(codes.NotFound, "the disk is gone")), codes.NotFound, nil},
		{fmt.Errorf("the disk is gone: %w", arrow.ErrInvalid), codes.InvalidArgument, nil},
		{fmt.Errorf("the disk is gone: %w", device.ErrNotSupported), codes.Unimplemented, nil},
		{fmt.Errorf("the disk is gone: %w", context.DeadlineExceeded), codes.DeadlineExceeded, context.DeadlineExceeded},
	} {
		for at := range 3 {
			t.Run(fmt.Sprint(row.err, " at ", at), func(t *testing.T) {
				client := serve(t, serving(func() *cdevice.RecordReader {
					return source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
						if i == at {
							return nil, row.err
						}
						return numbers(t, 0, 4), nil
					}, nil)
				}), flight.ServerOptions()...)
				r, err := flight.DoGet(t.Context(), client, ticket())
				var got []arrow.RecordBatch
				if err == nil {
					got, err = collect(r)
				}
				assert.Len(t, got, at)
				require.ErrorContains(t, err, "the disk is gone")
				assert.Equal(t, row.code, status.Code(err))
				if row.is != nil {
					assert.ErrorIs(t, err, row.is)
				}
			})
		}
	}
}

// A panic, or an end of the goroutine, in the server's source is an error for the client.
func TestPanicOfTheServersSource(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, f := range map[string]func(){"panic": func() { panic("broken") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, serving(func() *cdevice.RecordReader {
				return source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
					if i == 1 {
						f()
					}
					return numbers(t, 0, 4), nil
				}, nil)
			}), flight.ServerOptions()...)
			r, err := flight.DoGet(t.Context(), client, ticket())
			require.NoError(t, err)
			within.Seconds(t, "the stream", func() error { _, err = collect(r); return nil })
			require.Error(t, err)
			assert.Equal(t, codes.Unknown, status.Code(err))
		})
	}
}

// A consumer that does not read holds the server back.
func TestSlowConsumer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var made atomic.Int64
	wide := numbers(t, 0, 100_000)
	client := serve(t, serving(func() *cdevice.RecordReader {
		return source(t, func(ctx context.Context, i int) (arrow.RecordBatch, error) {
			made.Add(1)
			if i == 200 {
				return nil, io.EOF
			}
			wide.Retain()
			return wide, nil
		}, nil)
	}), flight.ServerOptions()...)
	r, err := flight.DoGet(t.Context(), client, ticket())
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next())
	steady := made.Load()
	for last, since := steady, time.Now(); time.Since(since) < 300*time.Millisecond; time.Sleep(time.Millisecond) {
		if steady = made.Load(); steady != last {
			last, since = steady, time.Now()
		}
	}
	assert.Less(t, steady, int64(40), "batches made while one was read")
	n := 1
	for r.Next() {
		n++
	}
	require.NoError(t, r.Err())
	assert.Equal(t, 200, n)
}

// A server that does not read holds DoPut back, and its error ends it.
func TestSlowServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	let := make(chan struct{})
	client := serve(t, &server{put: func(stream arrowflight.FlightService_DoPutServer) error {
		<-let
		return status.Error(codes.ResourceExhausted, "full")
	}}, flight.ServerOptions()...)
	var made atomic.Int64
	r := source(t, func(context.Context, int) (arrow.RecordBatch, error) { made.Add(1); return numbers(t, 0, 10_000), nil }, nil)
	defer r.Release()
	done := make(chan error, 1)
	go func() { done <- flight.DoPut(background, client, descriptor(), r) }()
	within.Eventually(t, "a batch", func() bool { return made.Load() > 0 })
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	assert.Less(t, made.Load(), int64(100))
	close(let)
	within.Seconds(t, "DoPut", func() error {
		err := <-done
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		return nil
	})
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
	t.Run("the source fails", func(t *testing.T) {
		r := source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
			if i == 2 {
				return nil, errors.New("no more disk")
			}
			return numbers(t, 0, 4), nil
		}, nil)
		defer r.Release()
		within.Seconds(t, "DoPut", func() error {
			assert.ErrorContains(t, flight.DoPut(background, client, descriptor(), r), "no more disk")
			return nil
		})
		assert.Error(t, <-received, "the server must not take a part for all")
	})
}

// The functions of options may fail, panic, end their goroutine, or block.
func TestFunctionsOfThePuts(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	kept := numbers(t, 0, 4)
	for name, row := range map[string]struct {
		f    func(*arrowflight.PutResult) error
		want string
	}{
		"error":  {func(*arrowflight.PutResult) error { return errors.New("not wanted") }, "not wanted"},
		"panic":  {func(*arrowflight.PutResult) error { panic("broken") }, "panic in the function of WithPutResults: broken"},
		"goexit": {func(*arrowflight.PutResult) error { runtime.Goexit(); return nil }, "ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			r := source(t, func(context.Context, int) (arrow.RecordBatch, error) { kept.Retain(); return kept, nil }, nil) // without end
			defer r.Release()
			within.Seconds(t, "DoPut", func() error {
				assert.ErrorContains(t, flight.DoPut(background, client, descriptor(), r, flight.WithPutResults(row.f)), row.want)
				return nil
			})
		})
	}
	t.Run("blocks", func(t *testing.T) {
		let := make(chan struct{})
		defer close(let)
		r := readerOf(t, device.CPUDevice(), schema, kept)
		defer r.Release()
		within.Context(t, "DoPut", func(ctx context.Context) error {
			return flight.DoPut(ctx, client, descriptor(), r, flight.WithPutResults(func(*arrowflight.PutResult) error { <-let; return nil }))
		})
	})
}

// The answers of an exchange end with the error of what is sent, and with a Release sending ends.
func TestExchangeEnds(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	failing := source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
		if i == 3 {
			return nil, status.Error(codes.DataLoss, "no more disk")
		}
		return numbers(t, 0, 4), nil
	}, nil)
	answers, err := flight.DoExchange(background, client, descriptor(), failing)
	failing.Release()
	if err == nil {
		_, err = collect(answers)
	}
	assert.ErrorContains(t, err, "no more disk")
	assert.Equal(t, codes.DataLoss, status.Code(err))

	var stopped atomic.Int64
	waiting := stuck(t, &stopped)()
	answers, err = flight.DoExchange(background, client, descriptor(), waiting)
	waiting.Release()
	require.NoError(t, err)
	require.True(t, answers.Next())
	answers.Release()
	within.Eventually(t, "the end of what is sent", func() bool { return stopped.Load() == 1 })
}

// However much is sent, a stream holds a few bodies of page-locked memory.
func TestGPUMemoryIsBounded(t *testing.T) {
	gpu := machine(t)
	there, here := onGPU(t, gpu), onGPU(t, gpu)
	const body = 100_000*8 + 100_001*4 + 100_000*20 // more than numbers makes
	wide := numbers(t, 0, 100_000)
	client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
			if i == 40 {
				return nil, io.EOF
			}
			wide.Retain()
			return wide, nil
		}, nil)
		defer r.Release()
		onDevice, err := r.CopyTo(stream.Context(), gpu)
		if err != nil {
			return err
		}
		defer onDevice.Release()
		return flight.Send(stream, onDevice, as[flight.SendOption](there.opts)...)
	}}, flight.ServerOptions()...)
	r, err := flight.DoGet(t.Context(), client, ticket(), as[flight.GetOption](here.opts)...)
	require.NoError(t, err)
	defer r.Release()
	n := 0
	for b, err := range r.All() {
		require.NoError(t, err)
		require.NoError(t, b.Synchronize(t.Context()))
		n++
	}
	assert.Equal(t, 40, n)
	peak := func(s side) int64 { return s.mem.(*hostpinned.Allocator).ReadStats().Pinned.Peak }
	assert.LessOrEqual(t, peak(there), int64(3*2*body), "page-locked memory of the sender")  // three, in classes of size
	assert.LessOrEqual(t, peak(here), int64(6*2*body), "page-locked memory of the receiver") // five, and the one that is copied
}
