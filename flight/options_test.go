package flight_test

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
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
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
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

// Each argument that can be nil has a row. Errors name the function and the argument, and have the code of an invalid one.
func TestNilArguments(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	r := readerOf(t, device.CPUDevice(), schema)
	defer r.Release()
	client := serve(t, &server{}, flight.ServerOptions()...)
	info := &arrowflight.FlightInfo{Schema: arrowflight.SerializeSchema(schema, memory.DefaultAllocator)}
	dial := dialing(client)
	stream := &swallow{}
	var none context.Context
	d := descriptor()
	released := func(r *cdevice.RecordReader, err error) error {
		if err == nil {
			r.Release()
		}
		return err
	}
	get := func(opt flight.GetOption) error { return released(flight.DoGet(background, client, ticket(), opt)) }
	put := func(opt flight.PutOption) error { return flight.DoPut(background, client, d, r, opt) }
	rows := map[string]nilargs.Row{ // The interface is gRPC's, for its streams. Memory for tickets may be absent.
		"Stream.SendMsg(m)": {Call: func() error { return stream.SendMsg(nil) }}, "Stream.RecvMsg(m)": {Call: func() error { _ = stream.RecvMsg(nil); return nil }},
		"WithSharing(dev)": {Call: func() error {
			return released(flight.DoGetEndpoints(background, info, dial, flight.WithSharing(nil, memory.DefaultAllocator)))
		}},
		"WithSharing(mem)": {Call: func() error {
			return released(flight.DoGetEndpoints(background, info, dial, flight.WithSharing((*cudaalloc.Device)(nil), nil)))
		}},
	}
	for name, call := range map[string]func() error{
		"DoGet(ctx)":                 func() error { return released(flight.DoGet(none, client, ticket())) },
		"DoGet(client)":              func() error { return released(flight.DoGet(background, nil, ticket())) },
		"DoGet(ticket)":              func() error { return released(flight.DoGet(background, client, nil)) },
		"DoGet(opts...)":             func() error { return get(nil) },
		"DoGetEndpoints(ctx)":        func() error { return released(flight.DoGetEndpoints(none, info, dial)) },
		"DoGetEndpoints(info)":       func() error { return released(flight.DoGetEndpoints(background, nil, dial)) },
		"DoGetEndpoints(dial)":       func() error { return released(flight.DoGetEndpoints(background, info, nil)) },
		"DoGetEndpoints(opts...)":    func() error { return released(flight.DoGetEndpoints(background, info, dial, nil)) },
		"DoExchange(ctx)":            func() error { return released(flight.DoExchange(none, client, d, r)) },
		"DoExchange(client)":         func() error { return released(flight.DoExchange(background, nil, d, r)) },
		"DoExchange(descriptor)":     func() error { return released(flight.DoExchange(background, client, nil, r)) },
		"DoExchange(r)":              func() error { return released(flight.DoExchange(background, client, d, nil)) },
		"DoExchange(opts...)":        func() error { return released(flight.DoExchange(background, client, d, r, nil)) },
		"DoPut(ctx)":                 func() error { return flight.DoPut(none, client, d, r) },
		"DoPut(client)":              func() error { return flight.DoPut(background, nil, d, r) },
		"DoPut(descriptor)":          func() error { return flight.DoPut(background, client, nil, r) },
		"DoPut(r)":                   func() error { return flight.DoPut(background, client, d, nil) },
		"DoPut(opts...)":             func() error { return put(nil) },
		"Send(stream)":               func() error { return flight.Send(nil, r) },
		"Send(r)":                    func() error { return flight.Send(stream, nil) },
		"Send(opts...)":              func() error { return flight.Send(stream, r, nil) },
		"Receive(stream)":            func() error { r, _, err := flight.Receive(nil); return released(r, err) },
		"Receive(opts...)":           func() error { r, _, err := flight.Receive(stream, nil); return released(r, err) },
		"WithAllocator(mem)":         func() error { return get(flight.WithAllocator(nil)) },
		"WithTarget(dev)":            func() error { return get(flight.WithTarget((*cudaalloc.Device)(nil))) },
		"WithMetadataFunc(f)":        func() error { return get(flight.WithMetadataFunc(nil)) },
		"WithCallOptions(opts...)":   func() error { return get(flight.WithCallOptions(nil)) },
		"WithWriterOptions(opts...)": func() error { return put(flight.WithWriterOptions(nil)) },
		"WithPutResults(f)":          func() error { return put(flight.WithPutResults(nil)) },
	} {
		function, argument, _ := strings.Cut(strings.TrimSuffix(name, ")"), "(")
		want := "flight: " + function + ": " + strings.Replace(argument, "...", "[0]", 1) + " = nil, want a"
		rows[name] = nilargs.Row{Want: want, Call: func() error {
			err := call()
			if err != nil && status.Code(err) != codes.InvalidArgument {
				return errors.New(status.Code(err).String())
			}
			return err
		}}
	}
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/flight", arrow.ErrInvalid, rows)
}

// swallow is a stream that takes everything.
type swallow struct{}

func (*swallow) Context() context.Context { return background }

func (*swallow) SendMsg(any) error { return nil }

func (*swallow) RecvMsg(any) error { return io.EOF }

// The options of gRPC are those of each call, with tickets or without. Credentials for all calls of a connection, of which
// gRPC's interface does not tell, are sent without tickets; WithSharing replaces them.
func TestCallOptions(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const ofTheConnection, ofTheCall = "of the connection", "of the call"
	var seen []string
	call := func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		seen = append(seen, md.Get("authorization")...)
		return status.Error(codes.Aborted, "called")
	}
	client := serveWith(t, &server{
		get:      func(_ *arrowflight.Ticket, s arrowflight.FlightService_DoGetServer) error { return call(s.Context()) },
		put:      func(s arrowflight.FlightService_DoPutServer) error { return call(s.Context()) },
		exchange: func(s arrowflight.FlightService_DoExchangeServer) error { return call(s.Context()) },
	}, grpc.WithDefaultCallOptions(grpc.PerRPCCredentials(credentials(ofTheConnection))))
	var withTickets []string
	if !flightticket.Available() { // as on Windows, where the option has no trace
		withTickets = []string{ofTheConnection}
	}
	for name, row := range map[string]struct {
		opts []any
		want []string
	}{
		"of the connection":               {nil, []string{ofTheConnection}},
		"of the connection, with tickets": {[]any{flight.WithSharing(nil, nil)}, withTickets},
		"of the call":                     {[]any{flight.WithCallOptions(grpc.PerRPCCredentials(credentials(ofTheCall)))}, []string{ofTheCall}},
		"of the call, with tickets": {[]any{flight.WithCallOptions(grpc.PerRPCCredentials(credentials(ofTheCall))), flight.WithSharing(nil, nil)},
			[]string{ofTheCall}},
	} {
		for function, do := range map[string]func() error{
			"DoGet": func() error { _, err := get(client, "", row.opts...); return err },
			"DoPut": func() error {
				_, err := put(t, client, readerOf(t, device.CPUDevice(), schema), row.opts...)
				return err
			},
			"DoExchange": func() error {
				_, err := exchange(t, client, readerOf(t, device.CPUDevice(), schema), row.opts...)
				return err
			},
		} {
			seen = nil
			assert.Equal(t, codes.Aborted, status.Code(do()), "%s, %s", name, function)
			assert.Equal(t, row.want, seen, "%s, %s", name, function)
		}
	}
}

// credentials are those of a program.
type credentials string

func (c credentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(c)}, nil
}

func (credentials) RequireTransportSecurity() bool { return false }
