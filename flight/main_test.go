package flight_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

var background = context.Background()

func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	os.Exit(goroutineleak.Run(m))
}

// server is a Flight server of functions.
type server struct {
	arrowflight.BaseFlightServer
	get      func(*arrowflight.Ticket, arrowflight.FlightService_DoGetServer) error
	put      func(arrowflight.FlightService_DoPutServer) error
	exchange func(arrowflight.FlightService_DoExchangeServer) error
}

func (s *server) DoGet(t *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	return s.get(t, stream)
}

func (s *server) DoPut(stream arrowflight.FlightService_DoPutServer) error { return s.put(stream) }

func (s *server) DoExchange(stream arrowflight.FlightService_DoExchangeServer) error {
	return s.exchange(stream)
}

// serve runs a server until the end of the test, and returns a client of it. All goroutines of both
// must have ended then.
func serve(t testing.TB, s *server, opts ...grpc.ServerOption) arrowflight.Client {
	t.Helper()
	return serveWith(t, s, grpc.EmptyDialOption{}, opts...)
}

// serveWith is serve with an option of the client's connection.
func serveWith(t testing.TB, s *server, dial grpc.DialOption, opts ...grpc.ServerOption) arrowflight.Client {
	t.Helper()
	checkGoroutines(t)
	listener := bufconn.Listen(1 << 20)
	grpcServer := grpc.NewServer(opts...)
	arrowflight.RegisterFlightServiceServer(grpcServer, s)
	go grpcServer.Serve(listener)
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()), dial,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		within.Limit(t, 10*time.Second, "the end of all calls of the server", func() error { grpcServer.GracefulStop(); return nil })
	})
	return arrowflight.NewClientFromConn(conn, nil)
}

// checkGoroutines fails the test if goroutines of this package or of grpc's calls are left at its end.
func checkGoroutines(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left string
		if !within.Becomes(10*time.Second, func() bool { left = ours(); return left == "" }) {
			t.Errorf("goroutines are left:\n%s", left)
		}
	})
}

// ours are the stacks of goroutines that run code of this package, and are not those of a test.
func ours() string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	stacks := slices.DeleteFunc(strings.Split(string(buf), "\n\n"), func(stack string) bool {
		return !strings.Contains(stack, "arrowdevice/flight.") || strings.Contains(stack, "testing.tRunner")
	})
	return strings.Join(stacks, "\n\n")
}

// side is the memory of one end of a stream.
type side struct {
	dev  device.Device
	mem  memory.Allocator
	opts []any
}

// as returns the options of a function; each has the types of all functions.
func as[O any](opts []any) (typed []O) {
	for _, opt := range opts {
		typed = append(typed, opt.(O))
	}
	return typed
}

// host is the CPU, with memory that must be free at the end of the test: a goroutine may drop its last batch late.
func host(t testing.TB) side {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	t.Cleanup(func() {
		within.Becomes(10*time.Second, func() bool { return mem.CurrentAlloc() == 0 })
		mem.AssertSize(t, 0)
	})
	return side{device.CPUDevice(), mem, []any{flight.WithAllocator(mem)}}
}

// onGPU is a GPU with page-locked memory, which must be free at the end of the test.
func onGPU(t testing.TB, gpu *cudaalloc.Device) side {
	mem := cudatest.Pinned(t, gpu, hostpinned.WithLimit(256<<20))
	t.Cleanup(func() {
		within.Eventually(t, "all page-locked memory is free", func() bool { return mem.ReadStats().Pinned.Live == 0 })
		mem.Trim()
	})
	return side{gpu, mem, []any{flight.WithTarget(gpu), flight.WithAllocator(mem)}}
}

// machine is a machine with a GPU.
func machine(t testing.TB) *cudaalloc.Device {
	cdevicetest.CheckLeaks(t)
	return cudatest.One(t, cudasim.Options{Delay: 100 * time.Microsecond}).GPUs[0]
}

// fromJSON is an array of the Go heap.
func fromJSON(t testing.TB, dt arrow.DataType, values string) arrow.Array {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(values))
	require.NoError(t, err)
	return arr
}

// recordOf is a record batch of one column, of a type.
func recordOf(t testing.TB, c cases.Case, v cases.Variant) arrow.RecordBatch {
	arr, err := c.Array(memory.DefaultAllocator, v)
	require.NoError(t, err)
	return recordOfColumn(arr)
}

// recordOfColumn is a record batch of one column.
func recordOfColumn(column arrow.Array) arrow.RecordBatch {
	s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: column.DataType(), Nullable: true}}, nil)
	return array.NewRecordBatch(s, []arrow.Array{column}, int64(column.Len()))
}

// numbers is a record batch of n rows from a number on.
func numbers(t testing.TB, from, n int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := from; i < from+n; i++ {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		if i%3 == 0 {
			b.Field(1).(*array.StringBuilder).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("number %d", i))
		}
	}
	return b.NewRecordBatch()
}

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// readerOf is a reader of copies of record batches on a device, or of the batches for the CPU.
func readerOf(t testing.TB, dev device.Device, s *arrow.Schema, recs ...arrow.RecordBatch) *cdevice.RecordReader {
	rdr, err := array.NewRecordReader(s, recs)
	require.NoError(t, err)
	defer rdr.Release()
	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	require.NoError(t, err)
	if dev.ID().Type == device.CPU {
		return r
	}
	defer r.Release()
	there, err := r.CopyTo(background, dev)
	require.NoError(t, err)
	return there
}

// collect copies the batches of a reader to the host, and releases it.
func collect(r *cdevice.RecordReader) (recs []arrow.RecordBatch, err error) {
	defer r.Release()
	for b, err := range r.All() {
		if err != nil {
			return recs, err
		}
		rec, err := b.CopyToHost(background, nil)
		if err != nil {
			return recs, err
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

// requireBatches fails unless a reader has these batches.
func requireBatches(t testing.TB, want []arrow.RecordBatch, r *cdevice.RecordReader) {
	t.Helper()
	got, err := collect(r)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		if !array.RecordEqual(want[i], got[i]) {
			require.Equal(t, fmt.Sprint(want[i]), fmt.Sprint(got[i]), "batch %d", i)
		}
		got[i].Release()
	}
}

// exchange sends a reader, which it releases, and returns the answers.
func exchange(t *testing.T, client arrowflight.Client, r *cdevice.RecordReader, opts ...any) (*cdevice.RecordReader, error) {
	defer r.Release()
	return flight.DoExchange(t.Context(), client, descriptor(), r, as[flight.ExchangeOption](opts)...)
}

// put sends a reader, which it releases, and returns the server's results.
func put(t *testing.T, client arrowflight.Client, r *cdevice.RecordReader, opts ...any) (results []string, err error) {
	defer r.Release()
	keep := flight.WithPutResults(func(p *arrowflight.PutResult) error {
		results = append(results, string(p.AppMetadata))
		return nil
	})
	err = flight.DoPut(t.Context(), client, descriptor(), r, append(as[flight.PutOption](opts), keep)...)
	return results, err
}

// get returns the batches of a ticket.
func get(client arrowflight.Client, ticket string, opts ...any) (*cdevice.RecordReader, error) {
	return flight.DoGet(background, client, &arrowflight.Ticket{Ticket: []byte(ticket)}, as[flight.GetOption](opts)...)
}

func ticket() *arrowflight.Ticket { return &arrowflight.Ticket{Ticket: []byte("ticket")} }

func descriptor() *arrowflight.FlightDescriptor {
	return &arrowflight.FlightDescriptor{Type: arrowflight.DescriptorPATH, Path: []string{"a", "path"}}
}

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

// failing is a source of batches whose batch i is an error.
func failing(t testing.TB, i int, err error) *cdevice.RecordReader {
	return source(t, func(_ context.Context, at int) (arrow.RecordBatch, error) {
		if at == i {
			return nil, err
		}
		return numbers(t, 0, 4), nil
	}, nil)
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
