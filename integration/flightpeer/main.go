// Command flightpeer is a Flight server, or a client, whose batches are in the memory of a GPU, for tests
// against other libraries.
//
//	go run ./integration/flightpeer serve            prints its address, and serves until its standard input ends
//	go run ./integration/flightpeer client ADDRESS   gets ticket "all", puts it to "back", exchanges it, and prints the rows
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
	"github.com/arrowdevice/arrowdevice/share"
)

func main() {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	mem, err := hostpinned.NewAllocator(gpu, hostpinned.WithLimit(1<<30))
	if err != nil {
		log.Fatal(err)
	}
	p := &peer{stored: map[string]*stored{}, gpu: flight.WithTarget(gpu), mem: flight.WithAllocator(mem), valid: flight.WithValidation()}
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = p.serve()
	case len(os.Args) == 3 && os.Args[1] == "client":
		err = p.client(os.Args[2])
	default:
		err = errors.New("usage: flightpeer serve | flightpeer client ADDRESS")
	}
	if err == nil {
		err = p.leaks(mem)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// peer keeps batches on a GPU.
type peer struct {
	arrowflight.BaseFlightServer
	gpu, valid flight.ReceiveOption
	mem        flight.Option

	mu     sync.Mutex
	stored map[string]*stored
}

type stored struct {
	schema  *arrow.Schema
	batches []*cdevice.RecordBatch
}

func (p *peer) serve() error {
	server := arrowflight.NewServerWithMiddleware(nil, flight.ServerOptions()...)
	if err := server.Init("127.0.0.1:0"); err != nil {
		return err
	}
	server.RegisterFlightService(p)
	fmt.Println(server.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Shutdown()
	}()
	return server.Serve()
}

// leaks drops what is kept, and returns an error if page-locked memory is in use then.
func (p *peer) leaks(mem *hostpinned.Allocator) error {
	for _, s := range p.stored {
		for _, b := range s.batches {
			b.Release()
		}
	}
	if err := mem.Device().Trim(context.Background()); err != nil {
		return err
	}
	if live := mem.ReadStats().Pinned.Live; live != 0 {
		return fmt.Errorf("%d bytes of page-locked memory were not freed", live)
	}
	return nil
}

// keep reads all batches of a reader, and releases it.
func keep(r *cdevice.RecordReader) (*stored, error) {
	defer r.Release()
	s := &stored{schema: r.Schema()}
	for b, err := range r.All() {
		if err != nil {
			return nil, err
		}
		b.Retain()
		s.batches = append(s.batches, b)
	}
	return s, nil
}

func (s *stored) reader() (*cdevice.RecordReader, error) {
	i := 0
	return cdevice.NewRecordReaderFunc(context.Background(), s.schema, device.CUDA, func(context.Context) (*cdevice.RecordBatch, error) {
		if i == len(s.batches) {
			return nil, io.EOF
		}
		b := s.batches[i]
		b.Retain()
		i++
		return b, nil
	}, nil)
}

// DoPut keeps the batches under the first name of the path.
func (p *peer) DoPut(stream arrowflight.FlightService_DoPutServer) error {
	r, d, err := flight.Receive(stream, p.gpu, p.mem, p.valid)
	if err != nil {
		return err
	}
	s, err := keep(r)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.stored[d.GetPath()[0]] = s
	p.mu.Unlock()
	return stream.Send(&arrowflight.PutResult{AppMetadata: fmt.Appendf(nil, "%d batches", len(s.batches))})
}

// causes are the errors that a ticket "error NAME TEXT" asks for.
var causes = map[string]error{
	"invalid": arrow.ErrInvalid, "type": arrow.ErrType, "unimplemented": arrow.ErrNotImplemented, "unsupported": device.ErrNotSupported,
	"missing": arrow.ErrNotFound, "key": arrow.ErrKey, "limit": hostpinned.ErrLimit, "memory": cudaalloc.OutOfMemory,
	"gone": share.ErrOwnerGone, "another": errors.New("another"),
}

// failing returns a reader whose first batch is an error.
func failing(err error) (*cdevice.RecordReader, error) {
	return cdevice.NewRecordReaderFunc(context.Background(), arrow.NewSchema(nil, nil), device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
		return nil, err
	}, nil)
}

// DoGet sends what was kept, or an error.
func (p *peer) DoGet(t *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	if request := strings.SplitN(string(t.Ticket), " ", 3); len(request) == 3 && request[0] == "error" {
		r, err := failing(fmt.Errorf("%s: %w", request[2], causes[request[1]]))
		if err != nil {
			return err
		}
		defer r.Release()
		return flight.Send(stream, r, p.mem)
	}
	p.mu.Lock()
	s := p.stored[string(t.Ticket)]
	p.mu.Unlock()
	if s == nil {
		return status.Errorf(codes.NotFound, "no batches %q", t.Ticket)
	}
	r, err := s.reader()
	if err != nil {
		return err
	}
	defer r.Release()
	return flight.Send(stream, r, p.mem)
}

// DoExchange sends back each batch that arrives.
func (p *peer) DoExchange(stream arrowflight.FlightService_DoExchangeServer) error {
	r, _, err := flight.Receive(stream, p.gpu, p.mem, p.valid)
	if err != nil {
		return err
	}
	defer r.Release()
	return flight.Send(stream, r, p.mem)
}

func (p *peer) client(address string) error {
	ctx := context.Background()
	client, err := arrowflight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := flight.DoGet(ctx, client, &arrowflight.Ticket{Ticket: []byte("all")}, p.gpu, p.mem, p.valid)
	if err != nil {
		return err
	}
	s, err := keep(r)
	if err != nil {
		return err
	}
	p.stored["all"] = s
	d := &arrowflight.FlightDescriptor{Type: arrowflight.DescriptorPATH, Path: []string{"back"}}
	r, err = s.reader()
	if err != nil {
		return err
	}
	defer r.Release()
	if err := flight.DoPut(ctx, client, d, r, p.mem); err != nil {
		return err
	}
	again, err := s.reader()
	if err != nil {
		return err
	}
	defer again.Release()
	answers, err := flight.DoExchange(ctx, client, d, again, p.gpu, p.mem, p.valid)
	if err != nil {
		return err
	}
	exchanged, err := keep(answers)
	if err != nil {
		return err
	}
	p.stored["exchanged"] = exchanged
	for _, b := range exchanged.batches {
		fmt.Println(b.NumRows(), "rows on", b.DeviceID())
	}
	return nil
}
