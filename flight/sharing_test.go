//go:build linux

package flight_test

import (
	"context"
	"fmt"
	"net"
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
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/share"
)

const sharedBatches = 5

func sharedNumbers(t *testing.T) (recs []arrow.RecordBatch) {
	for i := range sharedBatches {
		recs = append(recs, numbers(t, 1000*i, 1000))
	}
	return recs
}

func sharedReader(t *testing.T) *cdevice.RecordReader {
	return readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
}

// TestSharingServer is the other process. It reports on demand whether its shared memory is free.
func TestSharingServer(t *testing.T) {
	client := otherprocess.Caller(t)
	mem, err := share.NewAllocator()
	require.NoError(t, err)
	received := &counted{Allocator: memory.DefaultAllocator}
	opts := []any{flight.WithSharing(nil, mem), flight.WithAllocator(received), flight.WithPrefetch(0)}
	gpu, err := cudaalloc.Open(0)
	hasGPU := err == nil
	if hasGPU {
		opts = append(opts, flight.WithSharing(gpu, nil), flight.WithTarget(gpu))
	}
	s := echo(t, side{device.CPUDevice(), mem, opts}, nil)
	s.get = func(k *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := sharedReader(t)
		switch string(k.Ticket) {
		case "gpu":
			r.Release()
			r = readerOf(t, gpu, schema, sharedNumbers(t)...)
		case "talk":
			stream = talkative{stream}
		case "fail":
			good := sharedNumbers(t)
			r.Release()
			r = source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
				if i == len(good) {
					return nil, fmt.Errorf("no such column: %w", arrow.ErrInvalid)
				}
				return good[i], nil
			}, nil)
		}
		defer r.Release()
		return flight.Send(stream, r, as[flight.SendOption](opts[:1])...)
	}
	if hasGPU {
		opts[0] = flight.WithSharing(gpu, mem)
	}
	s.put = func(stream arrowflight.FlightService_DoPutServer) error {
		return answerPut(stream, received, as[flight.ReceiveOption](opts)...)
	}
	client.Write(serveTCP(t, s))
	for {
		switch client.Read() {
		case "free":
			client.Write(map[bool]string{true: "free", false: "leaked"}[becomesFree(mem)])
		case "count":
			client.Write(counts())
		default:
			return
		}
	}
}

// alone is longer than the mark of a ticket.
var alone = "alone" + strings.Repeat(" and long", 30)

// talkative sends app_metadata behind each message.
type talkative struct {
	arrowflight.FlightService_DoGetServer
}

func (s talkative) SendMsg(m any) error {
	if err := s.FlightService_DoGetServer.SendMsg(m); err != nil {
		return err
	}
	return s.FlightService_DoGetServer.SendMsg(&arrowflight.FlightData{AppMetadata: []byte(alone)})
}

// answerPut receives batches, and sends for each the number of its rows and received bytes, and its app_metadata. For the
// descriptor "one" it returns after the first batch.
func answerPut(stream arrowflight.FlightService_DoPutServer, received *counted, opts ...flight.ReceiveOption) error {
	r, d, err := flight.Receive(stream, opts...)
	if err != nil {
		return err
	}
	defer r.Release()
	before := received.bytes.Load()
	for b, err := range r.All() {
		if err != nil || d.Path[0] == "one" {
			return err
		}
		rec, err := b.CopyToHost(stream.Context(), nil)
		if err != nil {
			return err
		}
		said := fmt.Sprintf("%d rows in %d bytes", rec.NumRows(), received.bytes.Load()-before)
		if md, ok := b.Metadata().GetValue(flight.AppMetadataKey); ok {
			said += " with " + md
		}
		before = received.bytes.Load()
		rec.Release()
		if err := stream.Send(&arrowflight.PutResult{AppMetadata: []byte(said)}); err != nil {
			return err
		}
	}
	return nil
}

// TestSharingClient is the other process: a client of the server at an address, which does what it is told.
func TestSharingClient(t *testing.T) {
	owner := otherprocess.Caller(t)
	client := dialTCP(t, owner.Read())
	received := &counted{Allocator: memory.DefaultAllocator}
	opts := []any{flight.WithSharing(nil, nil), flight.WithPrefetch(0), flight.WithAllocator(received)}
	what := owner.Read()
	switch what {
	case "get to a GPU":
		gpu, err := cudaalloc.Open(0)
		require.NoError(t, err)
		opts = append(opts, flight.WithTarget(gpu))
	case "put":
		results, err := put(t, client, readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 1000)), flight.WithSharing(nil, shareAllocator(t)))
		require.NoError(t, err)
		owner.Write(results[0])
		return
	}
	r, err := get(client, "", opts...)
	require.NoError(t, err)
	switch what {
	case "get to a GPU":
		requireBatches(t, sharedNumbers(t), r)
		owner.Write(fmt.Sprint(received.bytes.Load(), " bytes"))
	case "get an error":
		_, err = collect(r)
		owner.Write(fmt.Sprint(err))
	case "hold two batches":
		r = r.Prefetch(1)
		for range 2 {
			require.True(t, r.Next(), r.Err())
			r.RecordBatch().Retain()
		}
		owner.Write("2 batches")
		owner.Read() // nothing comes: it is killed
	case "get without descriptors":
		owner.Write(fmt.Sprint(getWithoutDescriptors(t, r)))
		require.Equal(t, "release", owner.Read())
	}
}

// getWithoutDescriptors reads a reader, and returns its error. From the first batch on, which is released at the end of the
// test, the process has one descriptor for the ticket, and no other for the memory.
func getWithoutDescriptors(t *testing.T, r *cdevice.RecordReader) (err error) {
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	var b *cdevice.RecordBatch
	for b, err = range r.All() {
		if err != nil {
			break
		}
		b.Retain() // and its connection to the owner
		t.Cleanup(b.Release)
		next, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(next))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 1, Max: before.Max}))
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	r.Release()
	return err
}

// sharingClient starts the other process as a client of a server.
func sharingClient(t *testing.T, driver string, s *server, what string) *otherprocess.Peer {
	t.Helper()
	address := serveTCP(t, s)
	p := otherprocess.Start(t, "TestSharingClient", driver)
	p.Write(address)
	p.Write(what)
	return p
}

func becomesFree(mem *share.Allocator) bool {
	return within.Becomes(30*time.Second, func() bool { return mem.ReadStats().Held == 0 })
}

// counted counts the bytes that are allocated.
type counted struct {
	memory.Allocator
	bytes atomic.Int64
}

func (c *counted) Allocate(n int) []byte {
	c.bytes.Add(int64(n))
	return c.Allocator.Allocate(n)
}

// sharingServer starts the other process. A client waits for its answer as long as a loaded machine needs.
func sharingServer(t *testing.T, driver string) (*otherprocess.Peer, arrowflight.Client) {
	before := flightticket.ResponseTime
	t.Cleanup(func() { flightticket.ResponseTime = before })
	flightticket.ResponseTime = time.Minute
	peer := otherprocess.Start(t, "TestSharingServer", driver)
	checkGoroutines(t)
	return peer, dialTCP(t, peer.Read())
}

// serveTCP runs a server that other processes reach, and returns its address.
func serveTCP(t *testing.T, s *server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	grpcServer := grpc.NewServer(append(flight.ServerOptions(), grpc.WaitForHandlers(true))...) // leaks are counted behind them
	arrowflight.RegisterFlightServiceServer(grpcServer, s)
	go grpcServer.Serve(listener)
	t.Cleanup(grpcServer.Stop)
	return listener.Addr().String()
}

// dialTCP returns a client of a server at an address, until the end of the test.
func dialTCP(t *testing.T, address string) arrowflight.Client {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return arrowflight.NewClientFromConn(conn, nil)
}

// shareAllocator is memory for tickets, which must be free at the end of the test.
func shareAllocator(t *testing.T, opts ...share.AllocatorOption) *share.Allocator {
	mem, err := share.NewAllocator(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.True(t, becomesFree(mem), "%d bytes are in use", mem.ReadStats().Held) })
	return mem
}

func isFree(t *testing.T, peer *otherprocess.Peer) {
	t.Helper()
	peer.Write("free")
	require.Equal(t, "free", peer.Read())
}

// The three calls, by tickets, of which no byte is received, and by bytes. app_metadata alone may come between tickets.
func TestSharing(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	for name, tickets := range map[string]bool{"tickets": true, "bytes": false} {
		t.Run(name, func(t *testing.T) {
			received := &counted{Allocator: memory.DefaultAllocator}
			said := 0
			count := flight.WithMetadataFunc(func(b []byte) error { said++; assert.Equal(t, alone, string(b)); return nil })
			opts := []any{flight.WithAllocator(received)}
			if tickets {
				opts = append(opts, flight.WithSharing(nil, shareAllocator(t)))
			}
			for _, ticket := range []string{"", "talk"} {
				r, err := get(client, ticket, append(opts, count)...)
				require.NoError(t, err)
				requireBatches(t, sharedNumbers(t), r)
			}
			assert.Equal(t, 1+sharedBatches, said)
			answers, err := exchange(t, client, sharedReader(t), opts...)
			require.NoError(t, err)
			requireBatches(t, sharedNumbers(t), answers)
			assert.Equal(t, tickets, received.bytes.Load() == 0, "%d bytes were received", received.bytes.Load())
			results, err := put(t, client, sharedReader(t), opts...)
			require.NoError(t, err)
			require.Len(t, results, sharedBatches)
			for _, result := range results {
				assert.Equal(t, tickets, result == "1000 rows in 0 bytes", result)
			}
			isFree(t, peer)
		})
	}
}

// Every type goes to the other process and back by tickets, in host memory and in memory of a GPU, and dictionaries that
// change in the stream. Package share tests the variants of each type.
func TestGPUSharingEveryType(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	for name, dev := range map[string]device.Device{"host": device.CPUDevice(), "GPU": m.GPUs[0]} {
		t.Run(name, func(t *testing.T) {
			received := &counted{Allocator: memory.DefaultAllocator}
			opts, driver := []any{flight.WithAllocator(received), flight.WithSharing(nil, shareAllocator(t))}, ""
			if name == "GPU" {
				driver = m.Path()
				t.Setenv("CDEVICE_CUDA_DRIVER", driver) // package share opens the default driver
				opts = []any{flight.WithAllocator(received), flight.WithSharing(m.GPUs[0], nil), flight.WithTarget(dev)}
			}
			_, client := sharingServer(t, driver)
			_, kept := dictionaries(t, "a b", "a b", "a b c", "other")
			streams := map[string][]arrow.RecordBatch{"dictionaries": kept}
			for _, c := range cases.All() {
				rec := recordOf(t, c, cases.Nulls)
				streams[c.Name] = []arrow.RecordBatch{rec, rec}
			}
			for name, recs := range streams {
				t.Run(name, func(t *testing.T) {
					answers, err := exchange(t, client, readerOf(t, dev, recs[0].Schema(), recs...), opts...)
					require.NoError(t, err)
					requireBatches(t, recs, answers)
				})
			}
			assert.Zero(t, received.bytes.Load())
		})
	}
}

// Batches of a GPU stay there: no byte of them is received.
func TestSharingGPU(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	p := sharingClient(t, m.Path(), &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := readerOf(t, m.GPUs[0], schema, sharedNumbers(t)...)
		defer r.Release()
		return flight.Send(stream, r, flight.WithSharing(m.GPUs[0].Shareable(), nil))
	}}, "get to a GPU")
	require.Equal(t, "0 bytes", p.Read())
}

// A receiver that wants memory which it can share gets copies: the memory of a ticket is another process's.
func TestSharingToShareableMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	t.Setenv("CDEVICE_CUDA_DRIVER", m.Path())
	gpu := m.GPUs[0]
	_, client := sharingServer(t, m.Path())
	r := readerOf(t, gpu, schema, sharedNumbers(t)[0])
	answers, err := exchange(t, client, r, flight.WithSharing(gpu, nil), flight.WithTarget(gpu.Shareable()))
	require.NoError(t, err)
	defer answers.Release()
	require.True(t, answers.Next())
	ticket, err := share.Share(t.Context(), answers.RecordBatch())
	require.NoError(t, err)
	ticket.Close()
}

// A ticket has the metadata of its batch, or of the record batch that was wrapped, and app_metadata with it.
func TestSharingMetadata(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	mem := shareAllocator(t)
	answers, err := exchange(t, client, withMetadata(t, numbers(t, 0, 4), device.CPUDevice()), flight.WithSharing(nil, mem))
	require.NoError(t, err)
	none := map[string]string{}
	assert.Equal(t, []map[string]string{none, batchMetadata.ToMap(), none}, metadataOf(t, answers))
	results, err := put(t, client, withMetadata(t, numbers(t, 0, 4), device.CPUDevice()), flight.WithSharing(nil, mem))
	require.NoError(t, err)
	assert.Equal(t, []string{"4 rows in 0 bytes", "4 rows in 0 bytes with of\x00the app", "4 rows in 0 bytes"}, results)

	wrapped := array.NewRecordBatchWithMetadata(schema, numbers(t, 0, 4).Columns(), 4, batchMetadata)
	for _, opts := range [][]any{nil, {flight.WithSharing(nil, mem)}} {
		answers, err = exchange(t, client, readerOf(t, device.CPUDevice(), schema, wrapped), opts...)
		require.NoError(t, err)
		assert.Equal(t, []map[string]string{batchMetadata.ToMap()}, metadataOf(t, answers))
	}
}

// Batches go as bytes to and from peers that accept no tickets: the same process, servers without the option, of arrow-go,
// or that have sent their headers before Receive, and processes that cannot open memory of the GPU, here because they have
// no driver by default.
func TestSharingWithOthers(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	sendsTickets := func(t *testing.T) *server {
		mem := shareAllocator(t)
		return &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
			r := sharedReader(t)
			defer r.Release()
			return flight.Send(stream, r, flight.WithSharing(nil, mem))
		}}
	}
	const rows = "^1000 rows in [0-9]{5} bytes$"
	t.Run("same process", func(t *testing.T) {
		received := &counted{Allocator: memory.DefaultAllocator}
		r, err := get(serve(t, sendsTickets(t), flight.ServerOptions()...), "", flight.WithSharing(nil, nil), flight.WithAllocator(received))
		require.NoError(t, err)
		requireBatches(t, sharedNumbers(t), r)
		assert.NotZero(t, received.bytes.Load())
	})
	for name, s := range map[string]*server{"arrow-go's server": plainServer(), "without the option": echo(t, host(t), nil)} {
		t.Run(name, func(t *testing.T) {
			_, err := put(t, serve(t, s), sharedReader(t), flight.WithSharing(nil, shareAllocator(t)))
			require.NoError(t, err)
		})
	}
	t.Run("after the headers", func(t *testing.T) {
		p := sharingClient(t, "", &server{put: func(stream arrowflight.FlightService_DoPutServer) error {
			if err := stream.SendHeader(nil); err != nil {
				return err
			}
			received := &counted{Allocator: memory.DefaultAllocator}
			return answerPut(stream, received, flight.WithSharing(nil, nil), flight.WithAllocator(received), flight.WithPrefetch(0))
		}}, "put")
		assert.Regexp(t, rows, p.Read())
	})
	m := cudatest.One(t, cudasim.Options{})
	t.Run("a client without the GPU", func(t *testing.T) {
		_, client := sharingServer(t, m.Path())
		received := &counted{Allocator: memory.DefaultAllocator}
		r, err := get(client, "gpu", flight.WithSharing(nil, nil), flight.WithTarget(m.GPUs[0]), flight.WithAllocator(received))
		require.NoError(t, err)
		requireBatches(t, sharedNumbers(t), r)
		assert.NotZero(t, received.bytes.Load())
	})
	t.Run("a server without the GPU", func(t *testing.T) {
		_, client := sharingServer(t, "")
		results, err := put(t, client, readerOf(t, m.GPUs[0], schema, numbers(t, 0, 1000)), flight.WithSharing(m.GPUs[0], nil))
		require.NoError(t, err)
		require.Len(t, results, 1)
		assert.Regexp(t, rows, results[0])
	})
}

// Where the memory for tickets is used up, a batch is sent as bytes; so is one whose ticket is too large. Copies to memory
// that turns out not to be shared end with the first.
func TestSharingMixedWithBytes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	t.Run("memory", func(t *testing.T) {
		r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 10), numbers(t, 10, 2000), numbers(t, 20, 10), numbers(t, 30, 2000))
		results, err := put(t, client, r, flight.WithSharing(nil, shareAllocator(t, share.WithLimit(32<<10))))
		require.NoError(t, err)
		assert.Regexp(t, "^10 rows in 0 bytes;2000 rows in [0-9]{5} bytes;10 rows in 0 bytes;2000 rows in [0-9]{5} bytes$", strings.Join(results, ";"))
	})
	t.Run("size", func(t *testing.T) {
		md := arrow.NewMetadata([]string{"k"}, []string{strings.Repeat("v", 3000)})
		s := arrow.NewSchema(schema.Fields(), &md) // which a ticket has, and a batch has not
		rec := array.NewRecordBatch(s, numbers(t, 0, 4).Columns(), 4)
		mem := shareAllocator(t)
		var outcomes []string
		for size := 3000; size < 4000; size += 20 {
			results, err := put(t, client, readerOf(t, device.CPUDevice(), s, rec), flight.WithSharing(nil, mem), flight.WithMaxMessageSize(size))
			outcome := "bytes"
			if err != nil {
				require.ErrorContains(t, err, "WithMaxMessageSize") // of the schema
				outcome = "error"
			} else if require.Len(t, results, 1); results[0] == "4 rows in 0 bytes" {
				outcome = "ticket"
			}
			outcomes = append(outcomes, outcome)
		}
		assert.Equal(t, []string{"error", "bytes", "ticket"}, slices.Compact(outcomes))
	})
	t.Run("copies in vain", func(t *testing.T) {
		mem := &counting{Allocator: memory.NewGoAllocator()}
		_, err := put(t, client, sharedReader(t), flight.WithSharing(nil, mem))
		require.NoError(t, err)
		assert.Equal(t, 1, mem.n)
	})
}
