package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
	"github.com/arrowdevice/arrowdevice/share"
)

// request describes the batches that the client wants.
type request struct {
	Rows, Batches int
	GPU           bool // in memory of the GPU, else of the host
	Copied        bool // from memory that other processes cannot open
}

// sharer is the server of another process, which answers with tickets if the client takes them.
type sharer struct {
	arrowflight.BaseFlightServer
	gpu  *cudaalloc.Device
	mem  *share.Allocator
	last request
	kept *cdevice.RecordBatch // of the last request
}

// serveTickets is the other process.
func serveTickets() {
	gpu, err := cudaalloc.Open(0)
	check(err)
	mem, err := share.NewAllocator()
	check(err)
	s := arrowflight.NewServerWithMiddleware(nil, flight.ServerOptions()...)
	check(s.Init("127.0.0.1:0"))
	s.RegisterFlightService(&sharer{gpu: gpu, mem: mem})
	fmt.Println(s.Addr())
	go s.Serve()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // each line asks for the CPU time
		fmt.Println(int64(used()))
	}
}

func (s *sharer) DoGet(t *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	var q request
	if err := json.Unmarshal(t.Ticket, &q); err != nil {
		return err
	}
	if q != s.last || s.kept == nil {
		b, err := s.batch(context.Background(), q)
		if err != nil {
			return err
		}
		if s.kept != nil {
			s.kept.Release()
		}
		s.last, s.kept = q, b
	}
	b, i := s.kept, 0
	r, err := cdevice.NewRecordReaderFunc(context.Background(), b.Schema(), b.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
		if i++; i > q.Batches {
			return nil, io.EOF
		}
		b.Retain()
		return b, nil
	}, nil)
	if err != nil {
		return err
	}
	defer r.Release()
	return flight.Send(stream, r, flight.WithSharing(s.gpu, s.mem), flight.WithMaxMessageSize(128<<20))
}

func (s *sharer) batch(ctx context.Context, q request) (*cdevice.RecordBatch, error) {
	rec := column(q.Rows)
	defer rec.Release()
	here, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil || q.Copied && !q.GPU {
		return here, err
	}
	defer here.Release()
	switch {
	case q.GPU && q.Copied:
		return here.CopyTo(ctx, s.gpu)
	case q.GPU:
		return here.CopyTo(ctx, s.gpu.Shareable())
	}
	shared, err := here.CopyToHost(ctx, s.mem)
	if err != nil {
		return nil, err
	}
	defer shared.Release()
	return cdevice.WrapRecordBatch(shared, device.CPUDevice())
}

// sharing is the process that sends.
type sharing struct {
	arrowflight.Client
	in  io.Writer
	out *bufio.Scanner
}

func startPeer() *sharing {
	cmd := exec.Command("/proc/self/exe", "-role", "serve-tickets")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	check(err)
	out, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	n := &sharing{in: in, out: bufio.NewScanner(out)}
	n.Client, err = arrowflight.NewClientWithMiddleware(n.line(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	return n
}

func (n *sharing) line() string {
	if !n.out.Scan() {
		log.Fatal("the other process has ended")
	}
	return n.out.Text()
}

// used is the CPU time of both processes.
func (n *sharing) used() time.Duration {
	fmt.Fprintln(n.in)
	theirs, err := strconv.ParseInt(strings.TrimSpace(n.line()), 10, 64)
	check(err)
	return used() + time.Duration(theirs)
}

// compareTickets measures tickets against bytes, in turns.
func compareTickets() {
	gpu, err := cudaalloc.Open(0)
	check(err)
	n := startPeer()
	mem, err := hostpinned.NewAllocator(gpu, hostpinned.WithLimit(4<<30))
	check(err)
	fmt.Println("\n| tickets, two processes | bytes/s, of bodies | CPU time, of bodies |")
	fmt.Println("|---|---|---|")
	for _, row := range []struct {
		name string
		q    request
	}{
		{"host, batches of 8 MiB", request{Rows: 1 << 20, Batches: 64}},
		{"host, batches of 64 MiB", request{Rows: 8 << 20, Batches: 8}},
		{"host, batches of 8 MiB copied to shareable memory", request{Rows: 1 << 20, Batches: 64, Copied: true}},
		{"GPU, batches of 8 MiB", request{Rows: 1 << 20, Batches: 64, GPU: true}},
		{"GPU, batches of 64 MiB", request{Rows: 8 << 20, Batches: 8, GPU: true}},
		{"GPU, batches of 8 MiB copied to shareable memory", request{Rows: 1 << 20, Batches: 64, GPU: true, Copied: true}},
	} {
		opts := []flight.GetOption{flight.WithMaxMessageSize(128 << 20), flight.WithAllocator(mem), flight.WithTarget(gpu)}
		if !row.q.GPU {
			opts = []flight.GetOption{flight.WithMaxMessageSize(128 << 20)}
		}
		compareTwo(row.name, n.used, func() { check(n.get(context.Background(), row.q, opts)) }, func() {
			check(n.get(context.Background(), row.q, append(opts, flight.WithSharing(nil, nil))))
		})
	}
}

// get reads the batches; of host memory each value once.
func (n *sharing) get(ctx context.Context, q request, opts []flight.GetOption) error {
	ticket, err := json.Marshal(q)
	if err != nil {
		return err
	}
	r, err := flight.DoGet(ctx, n.Client, &arrowflight.Ticket{Ticket: ticket}, opts...)
	if err != nil {
		return err
	}
	defer r.Release()
	rows := 0
	for batch, err := range r.All() {
		if err != nil {
			return err
		}
		rows += int(batch.NumRows())
		if q.GPU {
			err = batch.Synchronize(ctx)
		} else {
			err = readAll(ctx, batch)
		}
		if err != nil {
			return err
		}
	}
	if rows != q.Rows*q.Batches {
		return fmt.Errorf("%d rows", rows)
	}
	return nil
}

func readAll(ctx context.Context, batch *cdevice.RecordBatch) error {
	rec, err := batch.HostView(ctx)
	if err != nil {
		return err
	}
	defer rec.Release()
	return notZero(rec)
}

func notZero(rec arrow.RecordBatch) error {
	values := rec.Column(0).(*array.Int64).Int64Values()
	if i := slices.IndexFunc(values, func(v int64) bool { return v != 0 }); i >= 0 {
		return fmt.Errorf("value %d is %d", i, values[i])
	}
	return nil
}

func column(rows int) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(make([]int64, rows), nil)
	return b.NewRecordBatch()
}

// compareTwo measures two functions in turns, and prints the ratios of their medians. The first turn, which fills the
// caches of memory, does not count. used returns CPU time.
func compareTwo(name string, used func() time.Duration, plain, ours func()) {
	var times [2]turns
	for i := range *rounds + 1 {
		for which, run := range []func(){plain, ours} {
			start, before := time.Now(), used()
			run()
			if i > 0 {
				times[which].elapsed = append(times[which].elapsed, float64(time.Since(start)))
				times[which].cpu = append(times[which].cpu, float64(used()-before))
			}
		}
	}
	fmt.Printf("| %s | %.2f | %.2f |\n", name, median(divided(times[0].elapsed, times[1].elapsed)), median(divided(times[1].cpu, times[0].cpu)))
}
