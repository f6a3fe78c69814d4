package flight_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestArgumentsOutOfRange(t *testing.T) {
	for _, row := range []struct {
		opt  flight.EndpointsOption
		want string
	}{
		{flight.WithPrefetch(-1), "WithPrefetch: n = -1, want 0 to 1048576"},
		{flight.WithPrefetch(1<<20 + 1), "WithPrefetch: n = 1048577, want 0 to 1048576"},
		{flight.WithPrefetch(math.MaxInt), "WithPrefetch: n = 9223372036854775807, want 0 to 1048576"},
		{flight.WithParallel(-1), "WithParallel: n = -1, want more than 0"},
		{flight.WithParallel(0), "WithParallel: n = 0, want more than 0"},
		{flight.WithMaxMessageSize(-1), "WithMaxMessageSize: size = -1, want more than 0"},
		{flight.WithMaxMessageSize(0), "WithMaxMessageSize: size = 0, want more than 0"},
	} {
		dial := func(context.Context, []string) (arrowflight.FlightServiceClient, error) { return nil, nil }
		_, err := flight.DoGetEndpoints(background, &arrowflight.FlightInfo{}, dial, row.opt)
		assert.EqualError(t, err, "flight: "+row.want+": invalid")
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
}

func TestSharingNeedsASharer(t *testing.T) {
	_, _, err := flight.Receive(&swallow{}, flight.WithSharing(device.CPUDevice(), nil))
	assert.ErrorContains(t, err, "flight: WithSharing: dev is a device.host, whose memory other processes cannot open")
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// Each argument that can be nil has a row. Errors have the code of an invalid argument.
func TestNilArguments(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	r := readerOf(t, device.CPUDevice(), schema)
	defer r.Release()
	client := serve(t, &server{}, flight.ServerOptions()...)
	info := &arrowflight.FlightInfo{Schema: arrowflight.SerializeSchema(schema, memory.DefaultAllocator)}
	dial := dialing(client)
	stream := &swallow{}
	var none context.Context
	rows := map[string]nilargs.Row{ // The interface is gRPC's, for its streams.
		"Stream.SendMsg(m)": {Call: func() error { return stream.SendMsg(nil) }}, "Stream.RecvMsg(m)": {Call: func() error { _ = stream.RecvMsg(nil); return nil }},
	}
	add := func(name, want string, call func() error) {
		rows[name] = nilargs.Row{Want: want, Call: func() error {
			err := call()
			if err != nil && status.Code(err) != codes.InvalidArgument {
				return errors.New(status.Code(err).String())
			}
			return err
		}}
	}
	reading := func(name, want string, call func() (*cdevice.RecordReader, error)) {
		add(name, want, func() error {
			r, err := call()
			if err == nil {
				r.Release()
			}
			return err
		})
	}
	get := func(ctx context.Context, client arrowflight.FlightServiceClient, ticket *arrowflight.Ticket, opts ...flight.GetOption) func() (*cdevice.RecordReader, error) {
		return func() (*cdevice.RecordReader, error) { return flight.DoGet(ctx, client, ticket, opts...) }
	}
	reading("DoGet(ctx)", "flight: DoGet: ctx = nil, want a context", get(none, client, ticket()))
	reading("DoGet(client)", "flight: DoGet: client = nil", get(background, nil, ticket()))
	reading("DoGet(ticket)", "flight: DoGet: ticket = nil", get(background, client, nil))
	reading("DoGet(opts...)", "flight: DoGet: opts[1] = nil, want an option", get(background, client, ticket(), flight.WithPrefetch(0), nil))
	endpoints := func(ctx context.Context, info *arrowflight.FlightInfo, dial flight.Dial, opts ...flight.EndpointsOption) func() (*cdevice.RecordReader, error) {
		return func() (*cdevice.RecordReader, error) { return flight.DoGetEndpoints(ctx, info, dial, opts...) }
	}
	reading("DoGetEndpoints(ctx)", "flight: DoGetEndpoints: ctx = nil", endpoints(none, info, dial))
	reading("DoGetEndpoints(info)", "flight: DoGetEndpoints: info = nil", endpoints(background, nil, dial))
	reading("DoGetEndpoints(dial)", "flight: DoGetEndpoints: dial = nil", endpoints(background, info, nil))
	reading("DoGetEndpoints(opts...)", "flight: DoGetEndpoints: opts[0] = nil", endpoints(background, info, dial, nil))
	exchange := func(ctx context.Context, client arrowflight.FlightServiceClient, d *arrowflight.FlightDescriptor, r *cdevice.RecordReader, opts ...flight.ExchangeOption) func() (*cdevice.RecordReader, error) {
		return func() (*cdevice.RecordReader, error) { return flight.DoExchange(ctx, client, d, r, opts...) }
	}
	reading("DoExchange(ctx)", "flight: DoExchange: ctx = nil", exchange(none, client, descriptor(), r))
	reading("DoExchange(client)", "flight: DoExchange: client = nil", exchange(background, nil, descriptor(), r))
	reading("DoExchange(descriptor)", "flight: DoExchange: descriptor = nil", exchange(background, client, nil, r))
	reading("DoExchange(r)", "flight: DoExchange: r = nil", exchange(background, client, descriptor(), nil))
	reading("DoExchange(opts...)", "flight: DoExchange: opts[0] = nil", exchange(background, client, descriptor(), r, nil))
	put := func(ctx context.Context, client arrowflight.FlightServiceClient, d *arrowflight.FlightDescriptor, r *cdevice.RecordReader, opts ...flight.PutOption) func() error {
		return func() error { return flight.DoPut(ctx, client, d, r, opts...) }
	}
	add("DoPut(ctx)", "flight: DoPut: ctx = nil", put(none, client, descriptor(), r))
	add("DoPut(client)", "flight: DoPut: client = nil", put(background, nil, descriptor(), r))
	add("DoPut(descriptor)", "flight: DoPut: descriptor = nil", put(background, client, nil, r))
	add("DoPut(r)", "flight: DoPut: r = nil", put(background, client, descriptor(), nil))
	add("DoPut(opts...)", "flight: DoPut: opts[0] = nil", put(background, client, descriptor(), r, nil))
	add("Send(stream)", "flight: Send: stream = nil", func() error { return flight.Send(nil, r) })
	add("Send(r)", "flight: Send: r = nil", func() error { return flight.Send(stream, nil) })
	add("Send(opts...)", "flight: Send: opts[0] = nil", func() error { return flight.Send(stream, r, nil) })
	receive := func(stream flight.Stream, opts ...flight.ReceiveOption) func() (*cdevice.RecordReader, error) {
		return func() (*cdevice.RecordReader, error) { r, _, err := flight.Receive(stream, opts...); return r, err }
	}
	reading("Receive(stream)", "flight: Receive: stream = nil", receive(nil))
	reading("Receive(opts...)", "flight: Receive: opts[0] = nil", receive(stream, nil))
	reading("WithAllocator(mem)", "flight: WithAllocator: mem = nil", get(background, client, ticket(), flight.WithAllocator(nil)))
	reading("WithTarget(dev)", "flight: WithTarget: dev = nil", get(background, client, ticket(), flight.WithTarget((*cudaalloc.Device)(nil))))
	reading("WithMetadataFunc(f)", "flight: WithMetadataFunc: f = nil", get(background, client, ticket(), flight.WithMetadataFunc(nil)))
	reading("WithCallOptions(opts...)", "flight: WithCallOptions: opts[0] = nil", get(background, client, ticket(), flight.WithCallOptions(nil)))
	add("WithWriterOptions(opts...)", "flight: WithWriterOptions: opts[0] = nil", put(background, client, descriptor(), r, flight.WithWriterOptions(nil)))
	add("WithPutResults(f)", "flight: WithPutResults: f = nil", put(background, client, descriptor(), r, flight.WithPutResults(nil)))
	reading("WithSharing(dev)", "", endpoints(background, info, dial, flight.WithSharing(nil, memory.DefaultAllocator)))
	reading("WithSharing(mem)", "", endpoints(background, info, dial, flight.WithSharing((*cudaalloc.Device)(nil), nil)))
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/flight", arrow.ErrInvalid, rows)
}

// swallow is a stream that takes everything.
type swallow struct{}

func (*swallow) Context() context.Context { return background }

func (*swallow) SendMsg(any) error { return nil }

func (*swallow) RecvMsg(any) error { return io.EOF }

// The options of gRPC are those of each call, with tickets or without.
func TestCallOptions(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	called := map[string]bool{}
	call := func(name string, ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		called[name] = assert.Equal(t, []string{"of the program"}, md.Get("authorization"))
		return status.Error(codes.Aborted, "called")
	}
	client := serve(t, &server{
		get: func(_ *arrowflight.Ticket, s arrowflight.FlightService_DoGetServer) error {
			return call("DoGet", s.Context())
		},
		put:      func(s arrowflight.FlightService_DoPutServer) error { return call("DoPut", s.Context()) },
		exchange: func(s arrowflight.FlightService_DoExchangeServer) error { return call("DoExchange", s.Context()) },
	})
	r := readerOf(t, device.CPUDevice(), schema)
	defer r.Release()
	program := flight.WithCallOptions(grpc.PerRPCCredentials(credentials{}))
	for _, sharing := range []bool{false, true} {
		clear(called)
		opts := []any{program}
		if sharing {
			opts = append(opts, flight.WithSharing(nil, nil))
		}
		_, err := flight.DoGet(background, client, ticket(), as[flight.GetOption](opts)...)
		assert.Equal(t, codes.Aborted, status.Code(err))
		assert.Equal(t, codes.Aborted, status.Code(flight.DoPut(background, client, descriptor(), r, as[flight.PutOption](opts)...)))
		_, err = flight.DoExchange(background, client, descriptor(), r, as[flight.ExchangeOption](opts)...)
		assert.Equal(t, codes.Aborted, status.Code(err))
		assert.Len(t, called, 3)
	}
}

// credentials are those of a program.
type credentials struct{}

func (credentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "of the program"}, nil
}

func (credentials) RequireTransportSecurity() bool { return false }
