package flight_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// parts is a server of tickets 0 to n-1, each of which has three batches of 10 rows, numbered through.
func parts(t testing.TB, n int, open *atomic.Int64) (*server, *arrowflight.FlightInfo) {
	info := &arrowflight.FlightInfo{}
	for i := range n {
		info.Endpoint = append(info.Endpoint, &arrowflight.FlightEndpoint{
			Ticket: &arrowflight.Ticket{Ticket: []byte{byte(i)}}, Location: []*arrowflight.Location{{Uri: fmt.Sprintf("grpc://host-%d", i%2)}},
		})
	}
	return &server{get: func(ticket *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		defer open.Add(-1)
		open.Add(1)
		r := source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
			if i == 3 {
				return nil, io.EOF
			}
			return numbers(t, 30*int(ticket.Ticket[0])+10*i, 10), nil
		}, nil)
		defer r.Release()
		return flight.Send(stream, r)
	}}, info
}

// dialing returns one client for all endpoints.
func dialing(client arrowflight.FlightServiceClient) flight.Dial {
	return func(context.Context, []string) (arrowflight.FlightServiceClient, error) { return client, nil }
}

func TestGPUEndpoints(t *testing.T) {
	gpu := machine(t)
	for _, ordered := range []bool{true, false} {
		for _, withSchema := range []bool{true, false} {
			t.Run(fmt.Sprint("ordered ", ordered, ", schema ", withSchema), func(t *testing.T) {
				var open, dialled atomic.Int64
				s, info := parts(t, 20, &open)
				info.Ordered = ordered
				if withSchema {
					info.Schema = arrowflight.SerializeSchema(schema, memory.DefaultAllocator)
				}
				client := serve(t, s, flight.ServerOptions()...)
				dial := func(_ context.Context, locations []string) (arrowflight.FlightServiceClient, error) {
					assert.Len(t, locations, 1)
					dialled.Add(1)
					return client, nil
				}
				r, err := flight.DoGetEndpoints(t.Context(), info, dial, append(as[flight.EndpointsOption](onGPU(t, gpu).opts), flight.WithParallel(3))...)
				require.NoError(t, err)
				recs, err := collect(r)
				require.NoError(t, err)
				seen := map[int64]bool{}
				for i, rec := range recs {
					from := rec.Column(0).(*array.Int64).Value(0)
					seen[from] = true
					if ordered {
						assert.Equal(t, int64(10*i), from)
					}
					rec.Release()
				}
				assert.Len(t, seen, 60)
				assert.Equal(t, int64(20), dialled.Load())
			})
		}
	}
}

// No more endpoints are read at once than was asked for, and none after the reader is released.
func TestParallelEndpointsAreBounded(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var open, most atomic.Int64
	info := &arrowflight.FlightInfo{Schema: arrowflight.SerializeSchema(schema, memory.DefaultAllocator)}
	for range 50 {
		info.Endpoint = append(info.Endpoint, &arrowflight.FlightEndpoint{Ticket: ticket()})
	}
	client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		defer open.Add(-1)
		for n := open.Add(1); ; {
			if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		return serving(stuck(t, new(atomic.Int64))).get(nil, stream)
	}}, flight.ServerOptions()...)
	dial := dialing(client)
	r, err := flight.DoGetEndpoints(t.Context(), info, dial, flight.WithParallel(5))
	require.NoError(t, err)
	for range 5 {
		require.True(t, r.Next())
	}
	within.Seconds(t, "Release", func() error { r.Release(); return nil })
	within.Eventually(t, "the end of all calls", func() bool { return open.Load() == 0 })
	assert.Equal(t, int64(5), most.Load())
}

func TestEndpointsFail(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var open atomic.Int64
	s, info := parts(t, 6, &open)
	info.Schema = arrowflight.SerializeSchema(schema, memory.DefaultAllocator)
	get := s.get
	s.get = func(ticket *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		if ticket.Ticket[0] == 4 {
			return status.Error(codes.NotFound, "no such ticket")
		}
		return get(ticket, stream)
	}
	client := serve(t, s, flight.ServerOptions()...)
	good := dialing(client)
	for want, dial := range map[string]flight.Dial{
		"endpoint 4: rpc error: code = NotFound desc = no such ticket": good,
		"DoGetEndpoints: client of dial = nil":                         dialing(nil),
	} {
		for _, info.Ordered = range []bool{true, false} {
			t.Run(fmt.Sprint(want, ", ordered ", info.Ordered), func(t *testing.T) {
				r, err := flight.DoGetEndpoints(t.Context(), info, dial)
				require.NoError(t, err)
				within.Seconds(t, "the stream", func() error { _, err = collect(r); return nil })
				require.ErrorContains(t, err, want)
				assert.NotEqual(t, codes.Unknown, status.Code(err))
			})
		}
	}
	for name, bad := range map[string]*arrowflight.FlightInfo{
		"neither a schema nor an endpoint": {},
		"FlightEndpoint.ticket: nil":       {Endpoint: []*arrowflight.FlightEndpoint{{}}},
		"FlightData.data_header":           {Schema: []byte("\xff\xff\xff\xff\x10\x00\x00\x00not a schema of Arrow")},
		"bytes of metadata":                {Schema: []byte("\xff\xff\xff\xff\xff\x00\x00\x00not a schema of Arrow")},
	} {
		_, err := flight.DoGetEndpoints(t.Context(), bad, good)
		assert.ErrorContains(t, err, name)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	empty := &arrowflight.FlightInfo{Schema: info.Schema}
	for _, empty.Ordered = range []bool{true, false} {
		r, err := flight.DoGetEndpoints(t.Context(), empty, good)
		require.NoError(t, err)
		requireBatches(t, nil, r)
	}
	within.Context(t, "Next", func(ctx context.Context) error {
		blocked := func(ctx context.Context, _ []string) (arrowflight.FlightServiceClient, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r, err := flight.DoGetEndpoints(ctx, info, blocked)
		require.NoError(t, err)
		defer r.Release()
		assert.False(t, r.Next())
		assert.Equal(t, codes.DeadlineExceeded, status.Code(r.Err()))
		return r.Err()
	})
}

// Batches of other endpoints that were read and not asked for are released with the reader.
func TestGPUEndpointsThatAreReady(t *testing.T) {
	gpu := machine(t)
	var open atomic.Int64
	s, info := parts(t, 3, &open)
	info.Ordered = true
	client := serve(t, s, flight.ServerOptions()...)
	dial := dialing(client)
	r, err := flight.DoGetEndpoints(t.Context(), info, dial, append(as[flight.EndpointsOption](onGPU(t, gpu).opts), flight.WithPrefetch(0))...)
	require.NoError(t, err)
	require.True(t, r.Next(), r.Err())
	const ready = 6 // of each endpoint one in its lane, and one behind it
	assert.Eventually(t, func() bool { return cdevice.ReadStats().DeviceCopies >= ready }, 10*time.Second, time.Millisecond)
	r.Release()
}

// A reader that is released while its endpoints deliver drops the batches that they deliver later.
func TestEndpointsAreGivenUp(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var open atomic.Int64
	s, info := parts(t, 8, &open)
	client := serve(t, s, flight.ServerOptions()...)
	dial := dialing(client)
	for i := range 100 {
		r, err := flight.DoGetEndpoints(t.Context(), info, dial, flight.WithParallel(8))
		require.NoError(t, err)
		for range i % 10 {
			require.True(t, r.Next())
		}
		r.Release()
	}
	within.Eventually(t, "the end of all calls", func() bool { return open.Load() == 0 })
}
