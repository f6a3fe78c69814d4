// Command flight compares this module's client of Arrow Flight with arrow-go's and a copy to the device
// after it, over loopback, and tickets of package share with bodies. It prints the ratios.
//
//	go run ./cudasim/run go run ./bench/flight
//
// Each pair is measured in turns, in one process; a ratio is of the medians.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"runtime"
	"slices"
	"sync"
	"syscall"
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
)

var (
	rounds = flag.Int("rounds", 7, "turns of each measurement")
	small  = flag.Int("small", 1_000_000, "number of small batches")
	only   = flag.Bool("tickets", false, "only tickets against bodies")
	serve  = flag.Bool("serve", false, "be the other process of the tickets")
)

func main() {
	flag.Parse()
	if *serve {
		serveTickets()
		return
	}
	gpu, err := cudaalloc.Open(0)
	check(err)
	mem, err := hostpinned.NewAllocator(gpu, hostpinned.WithLimit(4<<30))
	check(err)
	b := &bench{gpu: gpu, mem: mem}
	if *only {
		b.compareTickets()
		return
	}
	b.plain, b.ours = b.serve(false), b.serve(true)
	fmt.Println("| | bytes/s, of plain | CPU time, of plain |")
	fmt.Println("|---|---|---|")
	b.compare("one stream, batches of 8 MiB", load{rows: 1 << 20, batches: 64, streams: 1})
	b.compare("one stream, batches of 256 KiB", load{rows: 32 << 10, batches: 512, streams: 1})
	b.compare("64 streams, batches of 1 MiB", load{rows: 128 << 10, batches: 8, streams: 64})
	b.compare("small batches, of 10 rows", load{rows: 10, batches: *small / 20, streams: 1})
	b.million()
	b.compareTickets()
}

type bench struct {
	gpu         *cudaalloc.Device
	mem         *hostpinned.Allocator
	plain, ours arrowflight.Client
	load        load
}

// load is the streams of a measurement, and the batches of each.
type load struct{ rows, batches, streams int }

// server sends a batch many times: as arrow-go does, or as this module does.
type server struct {
	arrowflight.BaseFlightServer
	b    *bench
	ours bool
}

func (s *server) DoGet(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	rec := column(s.b.load.rows)
	defer rec.Release()
	n := s.b.load.batches
	if !s.ours {
		w := arrowflight.NewRecordWriter(stream)
		for range n {
			if err := w.Write(rec); err != nil {
				return err
			}
		}
		return w.Close()
	}
	i := 0
	r, err := cdevice.NewRecordReaderFunc(context.Background(), rec.Schema(), device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
		if i++; i > n {
			return nil, io.EOF
		}
		return cdevice.WrapRecordBatch(rec, device.CPUDevice())
	}, nil)
	if err != nil {
		return err
	}
	defer r.Release()
	return flight.Send(stream, r, flight.WithMaxMessageSize(64<<20))
}

func (b *bench) serve(ours bool) arrowflight.Client {
	opts := []grpc.ServerOption{grpc.MaxRecvMsgSize(64 << 20)}
	if ours {
		opts = flight.ServerOptions()
	}
	s := arrowflight.NewServerWithMiddleware(nil, opts...)
	check(s.Init("127.0.0.1:0"))
	s.RegisterFlightService(&server{b: b, ours: ours})
	go s.Serve()
	client, err := arrowflight.NewClientWithMiddleware(s.Addr().String(), nil, nil,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	check(err)
	return client
}

func column(rows int) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(make([]int64, rows), nil)
	return b.NewRecordBatch()
}

// getPlain is arrow-go's client, and a copy of each batch to the device.
func (b *bench) getPlain(ctx context.Context) error {
	stream, err := b.plain.DoGet(ctx, &arrowflight.Ticket{})
	if err != nil {
		return err
	}
	r, err := arrowflight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer r.Release()
	var last *cdevice.RecordBatch
	for r.Next() {
		there, err := cdevice.CopyToDevice(ctx, r.RecordBatch(), b.gpu)
		if err != nil {
			return err
		}
		if last != nil {
			last.Release()
		}
		last = there
	}
	if last != nil {
		defer last.Release()
		if err := last.Synchronize(ctx); err != nil {
			return err
		}
	}
	return r.Err()
}

func (b *bench) getOurs(ctx context.Context) error {
	r, err := flight.DoGet(ctx, b.ours, &arrowflight.Ticket{}, flight.WithTarget(b.gpu), flight.WithAllocator(b.mem))
	if err != nil {
		return err
	}
	defer r.Release()
	var last *cdevice.RecordBatch
	for batch, err := range r.All() {
		if err != nil {
			return err
		}
		if last != nil {
			last.Release()
		}
		batch.Retain()
		last = batch
	}
	if last != nil {
		defer last.Release()
		return last.Synchronize(ctx)
	}
	return nil
}

// run gets all streams of a load.
func (b *bench) run(get func(context.Context) error) {
	runtime.GC()
	var wg sync.WaitGroup
	for range b.load.streams {
		wg.Go(func() { check(get(context.Background())) })
	}
	wg.Wait()
}

func (b *bench) compare(name string, l load) {
	b.load = l
	compare(name, used, func() { b.run(b.getPlain) }, func() { b.run(b.getOurs) })
}

// compare measures two functions in turns, and prints the ratios of their medians. The first turn, which fills the caches
// of memory, does not count. used returns CPU time.
func compare(name string, used func() time.Duration, plain, ours func()) {
	var walls, cpus [2][]time.Duration
	for i := range *rounds + 1 {
		for which, run := range []func(){plain, ours} {
			start, before := time.Now(), used()
			run()
			if i > 0 {
				walls[which], cpus[which] = append(walls[which], time.Since(start)), append(cpus[which], used()-before)
			}
		}
	}
	fmt.Printf("| %s | %.2f | %.2f |\n", name, ratio(walls[0], walls[1]), ratio(cpus[1], cpus[0]))
	log.Printf("%s: %v, %v; cpu %v, %v", name, median(walls[0]), median(walls[1]), median(cpus[0]), median(cpus[1]))
}

// million receives very many small batches, and prints how much memory that takes.
func (b *bench) million() {
	b.load = load{rows: 10, batches: *small, streams: 1}
	mem, err := hostpinned.NewAllocator(b.gpu, hostpinned.WithLimit(1<<20))
	check(err)
	b.mem = mem
	heap := heapInUse()
	start := time.Now()
	b.run(b.getOurs)
	log.Printf("%d small batches: %v; page-locked at most %d KiB; heap grew by %d KiB", *small, time.Since(start), b.mem.ReadStats().Pinned.Peak>>10, (heapInUse()-heap)>>10)
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

func ratio(a, b []time.Duration) float64 { return float64(median(a)) / float64(median(b)) }

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// used is the CPU time of the process: of the server too, which is the same.
func used() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
