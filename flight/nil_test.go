package flight_test

import (
	"context"
	"io"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func second(r *cdevice.RecordReader, err error) error {
	if err == nil {
		r.Release()
	}
	return err
}

func TestCountsOutOfRange(t *testing.T) {
	for _, row := range []struct {
		opt  flight.Option
		want string
	}{
		{flight.WithPrefetch(-1), "WithPrefetch: -1, want 0 to 1048576"},
		{flight.WithPrefetch(1<<20 + 1), "WithPrefetch: 1048577, want 0 to 1048576"},
		{flight.WithPrefetch(math.MaxInt), "WithPrefetch: 9223372036854775807, want 0 to 1048576"},
		{flight.WithParallel(-1), "WithParallel: -1, want more than 0"},
		{flight.WithParallel(0), "WithParallel: 0, want more than 0"},
		{flight.WithMaxMessageSize(-1), "WithMaxMessageSize: -1 bytes, want more than 0"},
		{flight.WithMaxMessageSize(0), "WithMaxMessageSize: 0 bytes, want more than 0"},
	} {
		_, _, err := flight.Receive(&swallow{}, row.opt)
		assert.ErrorContains(t, err, row.want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
}

// Each argument that can be nil has a row.
func TestNilArguments(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	kept := []arrow.RecordBatch{numbers(t, 0, 4)}
	client := serve(t, echo(t, host(t), kept), flight.ServerOptions()...)
	info := &arrowflight.FlightInfo{Endpoint: []*arrowflight.FlightEndpoint{{Ticket: ticket()}}}
	dial := func(context.Context, []string) (arrowflight.FlightServiceClient, error) { return client, nil }
	with := func(f func(r *cdevice.RecordReader) error) func() error {
		return func() error {
			r := readerOf(t, device.CPUDevice(), schema, kept...)
			defer r.Release()
			return f(r)
		}
	}
	get := func(opt flight.Option) func() error {
		return func() error { return second(flight.DoGet(background, client, ticket(), opt)) }
	}
	receive := func(s flight.Stream, opts ...flight.Option) error {
		r, _, err := flight.Receive(s, opts...)
		return second(r, err)
	}
	var none context.Context
	sink := func() *swallow { return &swallow{} }
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/flight", nil, map[string]nilargs.Row{
		"DoGet(ctx)":        {Call: func() error { return second(flight.DoGet(none, client, ticket())) }, Want: "ctx: nil"},
		"DoGet(client)":     {Call: func() error { return second(flight.DoGet(background, nil, ticket())) }, Want: "client: nil"},
		"DoGet(ticket)":     {Call: func() error { return second(flight.DoGet(background, client, nil)) }, Want: "ticket: nil"},
		"DoGet(opts...)":    {Call: get(nil)},
		"DoPut(ctx)":        {Call: with(func(r *cdevice.RecordReader) error { return flight.DoPut(none, client, descriptor(), r) }), Want: "ctx: nil"},
		"DoPut(client)":     {Call: with(func(r *cdevice.RecordReader) error { return flight.DoPut(background, nil, descriptor(), r) }), Want: "client: nil"},
		"DoPut(descriptor)": {Call: with(func(r *cdevice.RecordReader) error { return flight.DoPut(background, client, nil, r) }), Want: "descriptor: nil"},
		"DoPut(r)":          {Call: func() error { return flight.DoPut(background, client, descriptor(), nil) }, Want: "r: nil"},
		"DoPut(opts...)":    {Call: with(func(r *cdevice.RecordReader) error { return flight.DoPut(background, client, descriptor(), r, nil) })},
		"DoExchange(ctx)":   {Call: with(func(r *cdevice.RecordReader) error { return second(flight.DoExchange(none, client, descriptor(), r)) }), Want: "ctx: nil"},
		"DoExchange(client)": {Call: with(func(r *cdevice.RecordReader) error {
			return second(flight.DoExchange(background, nil, descriptor(), r))
		}), Want: "client: nil"},
		"DoExchange(descriptor)": {Call: with(func(r *cdevice.RecordReader) error { return second(flight.DoExchange(background, client, nil, r)) }), Want: "descriptor: nil"},
		"DoExchange(r)":          {Call: func() error { return second(flight.DoExchange(background, client, descriptor(), nil)) }, Want: "r: nil"},
		"DoExchange(opts...)": {Call: with(func(r *cdevice.RecordReader) error {
			return second(flight.DoExchange(background, client, descriptor(), r, nil))
		})},
		"DoGetInfo(ctx)":           {Call: func() error { return second(flight.DoGetInfo(none, info, dial)) }, Want: "ctx: nil"},
		"DoGetInfo(info)":          {Call: func() error { return second(flight.DoGetInfo(background, nil, dial)) }, Want: "info: nil"},
		"DoGetInfo(dial)":          {Call: func() error { return second(flight.DoGetInfo(background, info, nil)) }, Want: "dial: nil"},
		"DoGetInfo(opts...)":       {Call: func() error { return second(flight.DoGetInfo(background, info, dial, nil)) }},
		"Send(stream)":             {Call: with(func(r *cdevice.RecordReader) error { return flight.Send(nil, r) }), Want: "stream: nil"},
		"Send(r)":                  {Call: func() error { return flight.Send(sink(), nil) }, Want: "r: nil"},
		"Send(opts...)":            {Call: with(func(r *cdevice.RecordReader) error { return flight.Send(sink(), r, nil) })},
		"Receive(stream)":          {Call: func() error { return receive(nil) }, Want: "stream: nil"},
		"Receive(opts...)":         {Call: func() error { return receive(&tape{marshal(t, record(t, kept)), 100}, nil) }},
		"ServerOptions(opts...)":   {Call: func() error { flight.ServerOptions(nil); return nil }},
		"WithAllocator(mem)":       {Call: get(flight.WithAllocator(nil)), Want: "WithAllocator: nil"},
		"WithDevice(dev)":          {Call: get(flight.WithDevice(nil)), Want: "WithDevice: nil"},
		"WithPutResults(f)":        {Call: get(flight.WithPutResults(nil)), Want: "WithPutResults: nil"},
		"WithMetadataFunc(f)":      {Call: get(flight.WithMetadataFunc(nil)), Want: "WithMetadataFunc: nil"},
		"WithCallOptions(opts...)": {Call: get(flight.WithCallOptions(nil...))},
		"WithSharing(dev)":         {Call: get(flight.WithSharing(nil, memory.DefaultAllocator))},
		"WithSharing(mem)":         {Call: get(flight.WithSharing((*cudaalloc.Device)(nil), nil))},
		// The interface is grpc's, for its streams.
		"Stream.SendMsg(m)":          {Call: func() error { return sink().SendMsg(nil) }},
		"Stream.RecvMsg(m)":          {Call: func() error { return (&tape{}).RecvMsg(nil) }, Want: "EOF"},
		"WithWriterOptions(opts...)": {Call: get(flight.WithWriterOptions(nil...))},
	})
}

// swallow is a stream that takes everything.
type swallow struct{}

func (*swallow) Context() context.Context { return background }
func (*swallow) SendMsg(any) error        { return nil }
func (*swallow) RecvMsg(any) error        { return io.EOF }
