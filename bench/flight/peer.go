package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// maxMessage is more than a batch has.
const maxMessage = 64 << 20

// peer is what a client and a server of a side have in common.
type peer struct {
	arrowflight.BaseFlightServer
	gpu  *cudaalloc.Device
	mem  *hostpinned.Allocator
	side mover

	mu   sync.Mutex
	last load
	kept *cdevice.RecordBatch // of the last load
}

// mover is how a side sends and receives batches.
type mover interface {
	// get reads the batches of a ticket, to memory of the GPU or of the host.
	get(ctx context.Context, client arrowflight.Client, l load) error
	put(ctx context.Context, client arrowflight.Client, l load) error
	send(stream arrowflight.FlightService_DoGetServer, l load) error
	receive(stream arrowflight.FlightService_DoPutServer) error
}

// beSide is a process of a side, until its input ends.
func beSide() {
	gpu, err := cudaalloc.Open(0)
	check(err)
	mem, err := hostpinned.NewAllocator(gpu, hostpinned.WithLimit(8<<30))
	check(err)
	p := &peer{gpu: gpu, mem: mem}
	what, kind, _ := strings.Cut(*role, "-")
	p.side = &plain{p}
	if kind == "ours" {
		p.side = &ours{p}
	}
	if *profile != "" {
		file, err := os.Create(*profile)
		check(err)
		check(pprof.StartCPUProfile(file))
		defer pprof.StopCPUProfile()
	}
	if what == "serve" {
		p.serve(kind == "ours")
		return
	}
	client := connect(*address)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var l load
		check(json.Unmarshal(in.Bytes(), &l))
		answer(p.run(client, l))
	}
}

func answer(m measured) {
	text, err := json.Marshal(m)
	check(err)
	fmt.Println(string(text))
}

func (p *peer) serve(ours bool) {
	opts := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage)}
	if ours {
		opts = flight.ServerOptions()
	}
	s := arrowflight.NewServerWithMiddleware(nil, opts...)
	check(s.Init("127.0.0.1:0"))
	s.RegisterFlightService(p)
	fmt.Println(s.Addr())
	go s.Serve()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer(measured{CPU: int64(used())})
	}
}

func connect(address string) arrowflight.Client {
	client, err := arrowflight.NewClientWithMiddleware(address, nil, nil,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	check(err)
	return client
}

// run moves a load, on all streams at once.
func (p *peer) run(client arrowflight.Client, l load) measured {
	move := p.side.get
	if l.Put {
		move = p.side.put
	}
	runtime.GC()
	start, before := time.Now(), used()
	var wg sync.WaitGroup
	for range l.Streams {
		wg.Go(func() { check(move(context.Background(), client, l)) })
	}
	wg.Wait()
	return measured{int64(time.Since(start)), int64(used() - before)}
}

func (p *peer) DoGet(t *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	var l load
	if err := json.Unmarshal(t.Ticket, &l); err != nil {
		return err
	}
	return p.side.send(stream, l)
}

func (p *peer) DoPut(stream arrowflight.FlightService_DoPutServer) error {
	return p.side.receive(stream)
}

// encoded is a load as the bytes of a ticket or of a descriptor.
func (l load) encoded() []byte {
	text, err := json.Marshal(l)
	check(err)
	return text
}

// gpuHeader is in the metadata of a DoPut whose batches go to the GPU.
const gpuHeader = "bench-gpu"

func (l load) mark(ctx context.Context) context.Context {
	if l.GPU {
		return metadata.AppendToOutgoingContext(ctx, gpuHeader, "yes")
	}
	return ctx
}

func toGPU(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return len(md.Get(gpuHeader)) > 0
}

// columns is the number of columns of a batch.
const columns = 3

// batch returns the batch of a load, borrowed: one for all streams.
func (p *peer) batch(ctx context.Context, l load) *cdevice.RecordBatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.Batches = 0
	if p.kept != nil && l == p.last {
		return p.kept
	}
	rec := newBatch(l.Rows)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	check(err)
	if l.GPU {
		here := b
		b, err = here.CopyTo(ctx, p.gpu)
		check(err)
		here.Release()
	}
	if p.kept != nil {
		p.kept.Release()
	}
	p.last, p.kept = l, b
	return b
}

func newBatch(rows int) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "value", Type: arrow.PrimitiveTypes.Float32}, {Name: "kind", Type: arrow.PrimitiveTypes.Uint8},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.Float32Builder).Append(float32(i))
		b.Field(2).(*array.Uint8Builder).Append(uint8(i))
	}
	return b.NewRecordBatch()
}

// source reads the batch of a load again and again.
func (p *peer) source(l load) *cdevice.RecordReader {
	b, i := p.batch(context.Background(), l), 0
	r, err := cdevice.NewRecordReaderFunc(context.Background(), b.Schema(), b.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
		if i++; i > l.Batches {
			return nil, io.EOF
		}
		b.Retain()
		return b, nil
	}, nil)
	check(err)
	return r
}
