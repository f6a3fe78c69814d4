package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
)

// Operations of streams of Arrow Flight, between a client and a server of this process.

func init() {
	register(&verb{name: "flight", weight: 3, draw: drawFlight, expect: expectFlight, do: doFlight})
}

// ends are how a stream ends: by itself, by an error of its source, or by the receiver's context.
var ends = []string{"", "", "source", "context"}

func drawFlight(g *generator) (Op, bool) {
	first := g.one(given(isReady, hasRowsOf), batchKind)
	if first == nil {
		return Op{}, false
	}
	o := Op{Out: g.name(batchKind), On: []string{first.name}}
	for range g.IntN(4) {
		if b := g.one(given(isReady, hasRowsOf, func(b *object) bool { return b.shape() == first.shape() && b.at == first.at }), batchKind); b != nil {
			o.On = append(o.On, b.name)
		}
	}
	o.Args = []string{[]string{"get", "put", "exchange"}[g.IntN(3)], string([]place{home, cpu}[g.IntN(2)]), ends[g.IntN(len(ends))], num(g.IntN(len(o.On))), num(g.IntN(3))}
	return o, true
}

func hasRowsOf(o *object) bool { return hasRows(o.table) }

func expectFlight(m *model, o Op) (string, bool) {
	var text []string
	for _, name := range o.On {
		b, first := m.get(name, batchKind), m.objects[o.On[0]]
		if b == nil || !b.ready() || !hasRows(b.table) || b.shape() != first.shape() || b.at != first.at {
			return "", false
		}
		text = append(text, b.String())
	}
	kept := m.objects[o.On[min(o.num(3), len(o.On)-1)]]
	m.owned(m.add(o.Out, batchKind, object{table: kept.table, at: place(o.arg(1))}))
	switch o.arg(2) {
	case "source":
		text = append(text, failed("ErrNotSupported"))
	case "context":
		text = append(text, failed("Canceled"))
	default:
		text = append(text, "ok")
	}
	return strings.Join(text, "\n"), true
}

// received is the batches of a stream as they were read, the end, and one that was kept.
type received struct {
	text []string
	kept *cdevice.RecordBatch
	err  error
}

// receive reads a stream to its end; after the last batch that comes, it calls last.
func (r *run) receive(from *cdevice.RecordReader, count, keep int, last func()) (in received) {
	for b, err := range from.All() {
		if err != nil {
			in.err = err
			break
		}
		in.text = append(in.text, r.readBatch(b, "copy to host"))
		if len(in.text) == keep+1 {
			b.Retain()
			in.kept = b
		}
		if len(in.text) == count {
			last()
		}
	}
	return in
}

// source is a reader of the batches, which ends as the operation says: an error comes when all batches have arrived.
func (r *run) source(ctx context.Context, o Op, arrived <-chan struct{}) (*cdevice.RecordReader, error) {
	var all []*cdevice.RecordBatch
	for _, name := range o.On {
		all = append(all, value[*cdevice.RecordBatch](r, name))
	}
	id := all[0].DeviceID()
	return cdevice.NewRecordReaderFunc(ctx, all[0].Schema(), id.Type, func(ctx context.Context) (*cdevice.RecordBatch, error) {
		if len(all) > 0 {
			b := all[0]
			all = all[1:]
			b.Retain()
			return b, nil
		}
		switch o.arg(2) {
		case "source":
			select {
			case <-arrived:
			case <-ctx.Done():
			}
			return nil, fmt.Errorf("no more: %w", device.ErrNotSupported)
		case "context":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, io.EOF
	}, nil)
}

// doFlight sends batches. One is kept, and outlives the stream, its connection and the server.
func doFlight(r *run, o Op) string {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	arrived := make(chan struct{})
	source, err := r.source(ctx, o, arrived)
	if err != nil {
		return err.Error()
	}
	defer source.Release()
	server := &flightServer{}
	client, stop, err := server.serve()
	if err != nil {
		return err.Error()
	}
	last := func() {
		close(arrived)
		if o.arg(2) == "context" {
			cancel()
		}
	}
	in := r.transfer(ctx, last, o, source, server, client)
	stop()
	if in.kept == nil {
		return fmt.Sprintf("nothing arrived: %v", in.err)
	}
	r.values[o.Out] = in.kept
	return strings.Join(append(in.text, errorText(in.err)), "\n")
}

func (r *run) receiveOptions(o Op) (opts []any) {
	if n := o.num(4); n > 0 {
		opts = append(opts, flight.WithPrefetch(n))
	}
	if place(o.arg(1)) == home {
		opts = append(opts, flight.WithTarget(r.home))
	}
	return opts
}

// optionsOf are those of a kind.
func optionsOf[T any](all []any) (some []T) {
	for _, opt := range all {
		some = append(some, opt.(T))
	}
	return some
}

func (r *run) transfer(ctx context.Context, last func(), o Op, source *cdevice.RecordReader, server *flightServer, client arrowflight.Client) (in received) {
	count, keep := len(o.On), min(o.num(3), len(o.On)-1)
	opts := r.receiveOptions(o)
	descriptor := &arrowflight.FlightDescriptor{Type: arrowflight.DescriptorCMD, Cmd: []byte("a name")}
	switch o.arg(0) {
	case "put":
		done := make(chan received, 1)
		server.put = func(stream arrowflight.FlightService_DoPutServer) error {
			from, got, err := flight.Receive(stream, optionsOf[flight.ReceiveOption](opts)...)
			if err != nil {
				done <- received{err: err}
				return err
			}
			defer from.Release()
			all := r.receive(from, count, keep, last)
			if string(got.GetCmd()) != "a name" {
				all.err = errors.New("another descriptor")
			}
			done <- all
			return all.err
		}
		err := flight.DoPut(ctx, client, descriptor, source)
		in = <-done
		in.err = err
		return in
	case "exchange":
		server.exchange = func(stream arrowflight.FlightService_DoExchangeServer) error {
			from, _, err := flight.Receive(stream)
			if err != nil {
				return err
			}
			defer from.Release()
			return flight.Send(stream, from)
		}
		from, err := flight.DoExchange(ctx, client, descriptor, source, optionsOf[flight.ExchangeOption](opts)...)
		if err != nil {
			return received{err: err}
		}
		defer from.Release()
		return r.receive(from, count, keep, last)
	}
	server.get = func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		return flight.Send(stream, source)
	}
	from, err := flight.DoGet(ctx, client, &arrowflight.Ticket{Ticket: []byte("x")}, optionsOf[flight.GetOption](opts)...)
	if err != nil {
		return received{err: err}
	}
	defer from.Release()
	return r.receive(from, count, keep, last)
}

// flightServer is a server of one call.
type flightServer struct {
	arrowflight.BaseFlightServer
	get      func(*arrowflight.Ticket, arrowflight.FlightService_DoGetServer) error
	put      func(arrowflight.FlightService_DoPutServer) error
	exchange func(arrowflight.FlightService_DoExchangeServer) error
}

// DoGet calls get.
func (s *flightServer) DoGet(t *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	return s.get(t, stream)
}

// DoPut calls put.
func (s *flightServer) DoPut(stream arrowflight.FlightService_DoPutServer) error {
	return s.put(stream)
}

// DoExchange calls exchange.
func (s *flightServer) DoExchange(stream arrowflight.FlightService_DoExchangeServer) error {
	return s.exchange(stream)
}

// serve runs the server on the loopback interface until stop is called, which returns when all its calls have ended.
func (s *flightServer) serve() (client arrowflight.Client, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer(append(flight.ServerOptions(), grpc.WaitForHandlers(true))...)
	arrowflight.RegisterFlightServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return arrowflight.NewClientFromConn(conn, nil), func() {
		_ = conn.Close()
		server.Stop()
	}, nil
}
