//go:build linux

package flight_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
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

// TestSharingServer is the other process. It reports on demand whether its shared memory is free.
func TestSharingServer(t *testing.T) {
	client := otherprocess.Caller(t)
	mem, err := share.NewAllocator()
	require.NoError(t, err)
	s := &server{get: func(k *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		var from, shareable device.Device = device.CPUDevice(), nil
		if string(k.Ticket) == "gpu" {
			gpu, err := cudaalloc.Open(0)
			if err != nil {
				return err
			}
			from, shareable = gpu, gpu.Shareable()
		}
		r := readerOf(t, from, schema, sharedNumbers(t)...)
		defer r.Release()
		switch string(k.Ticket) {
		case "talk":
			stream = talkative{stream}
		case "fail":
			good := r
			r, err = cdevice.NewRecordReader(schema, device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
				for b, err := range good.All() {
					if !yield(b, err) {
						return
					}
				}
				yield(nil, fmt.Errorf("no such column: %w", arrow.ErrInvalid))
			})
			if err != nil {
				return err
			}
			defer r.Release()
		}
		return flight.Send(stream, r, flight.WithSharing(shareable, mem))
	}}
	received := &counted{Allocator: memory.DefaultAllocator}
	opts := []any{flight.WithSharing(nil, mem), flight.WithAllocator(received), flight.WithPrefetch(0)}
	if gpu, err := cudaalloc.Open(0); err == nil {
		opts = append(opts, flight.WithSharing(gpu, nil), flight.WithTarget(gpu))
	}
	s.put = func(stream arrowflight.FlightService_DoPutServer) error {
		r, d, err := flight.Receive(stream, as[flight.ReceiveOption](opts)...)
		if err != nil {
			return err
		}
		defer r.Release()
		return answerPut(stream, r, d, received)
	}
	s.exchange = func(stream arrowflight.FlightService_DoExchangeServer) error {
		r, _, err := flight.Receive(stream, as[flight.ReceiveOption](opts)...)
		if err != nil {
			return err
		}
		defer r.Release()
		return flight.Send(stream, r, as[flight.SendOption](opts)...)
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

// answerPut reads batches, and sends for each the number of received bytes.
func answerPut(stream arrowflight.FlightService_DoPutServer, r *cdevice.RecordReader, d *arrowflight.FlightDescriptor, received *counted) error {
	if d.Path[0] == "one" {
		r.Next()
		return r.Err()
	}
	before := received.bytes.Load()
	for b, err := range r.All() {
		if err != nil {
			return err
		}
		rec, err := b.CopyToHost(stream.Context(), nil)
		if err != nil {
			return err
		}
		md := b.Metadata()
		i := max(md.FindKey(flight.AppMetadataKey), 0)
		said := fmt.Sprintf("%d rows in %d bytes", rec.NumRows(), received.bytes.Load()-before)
		if md.Len() > 0 {
			said += " with " + md.Values()[i]
		}
		before = received.bytes.Load()
		rec.Release()
		if err := stream.Send(&arrowflight.PutResult{AppMetadata: []byte(said)}); err != nil {
			return err
		}
	}
	return nil
}

func becomesFree(mem *share.Allocator) bool {
	for end := time.Now().Add(30 * time.Second); mem.ReadStats().Held != 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return mem.ReadStats().Held == 0
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

// dialTCP returns a client of a server at an address, until the end of the test.
func dialTCP(t *testing.T, address string) arrowflight.Client {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return arrowflight.NewClientFromConn(conn, nil)
}

func isFree(t *testing.T, peer *otherprocess.Peer) {
	t.Helper()
	peer.Write("free")
	require.Equal(t, "free", peer.Read())
}

func TestSharing(t *testing.T) {
	peer, client := sharingServer(t, "")
	for name, opts := range map[string][]any{"tickets": {flight.WithSharing(nil, nil)}, "bytes": nil} {
		t.Run(name, func(t *testing.T) {
			h := host(t)
			mem := &counted{Allocator: h.mem}
			r, err := flight.DoGet(background, client, ticket(), as[flight.GetOption](append(opts, flight.WithAllocator(mem)))...)
			require.NoError(t, err)
			requireBatches(t, sharedNumbers(t), r)
			assert.Equal(t, opts == nil, mem.bytes.Load() > 0, "%d bytes were received", mem.bytes.Load())
			isFree(t, peer)
		})
	}
}

// An error of the server's reader comes behind the batches before it, although their tickets end with the call.
func TestSharingErrorOfTheReader(t *testing.T) {
	peer, client := sharingServer(t, "")
	for range 20 {
		r, err := flight.DoGet(background, client, &arrowflight.Ticket{Ticket: []byte("fail")}, flight.WithSharing(nil, nil))
		require.NoError(t, err)
		received := 0
		for r.Next() {
			received++
		}
		require.ErrorContains(t, r.Err(), "no such column")
		assert.Equal(t, codes.InvalidArgument, status.Code(r.Err()))
		assert.Len(t, sharedNumbers(t), received)
		r.Release()
		isFree(t, peer)
	}
}

// A client that cannot open memory of a GPU, here because its process has no driver by default, gets bytes.
func TestSharingWithoutGPU(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	_, client := sharingServer(t, m.Path())
	mem := &counted{Allocator: memory.DefaultAllocator}
	r, err := flight.DoGet(background, client, &arrowflight.Ticket{Ticket: []byte("gpu")},
		flight.WithSharing(nil, nil), flight.WithTarget(m.GPUs[0]), flight.WithAllocator(mem))
	require.NoError(t, err)
	requireBatches(t, sharedNumbers(t), r)
	assert.NotZero(t, mem.bytes.Load())
}

// TestSharingClient is the other process. It gets batches of a GPU, and reports how many bytes it has received.
func TestSharingClient(t *testing.T) {
	owner := otherprocess.Caller(t)
	gpu, err := cudaalloc.Open(0)
	require.NoError(t, err)
	client := dialTCP(t, owner.Read())
	mem := &counted{Allocator: memory.DefaultAllocator}
	r, err := flight.DoGet(background, client, ticket(),
		flight.WithSharing(nil, nil), flight.WithTarget(gpu), flight.WithAllocator(mem))
	require.NoError(t, err)
	requireBatches(t, sharedNumbers(t), r)
	owner.Write(strconv.FormatInt(mem.bytes.Load(), 10))
}

// Batches of a GPU stay there: no byte of them is received.
func TestSharingGPU(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	address := serveTCP(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := readerOf(t, m.GPUs[0], schema, sharedNumbers(t)...)
		defer r.Release()
		return flight.Send(stream, r, flight.WithSharing(m.GPUs[0].Shareable(), nil))
	}})
	p := otherprocess.Start(t, "TestSharingClient", m.Path())
	p.Write(address)
	require.Equal(t, "0", p.Read())
}

// The first ticket cannot be opened: the client asks again, for bytes.
func TestSharingFallsBack(t *testing.T) {
	peer, client := sharingServer(t, "")
	calls := 0
	broken := brokenTickets{client, &calls}
	r, err := flight.DoGet(background, broken, ticket(), flight.WithSharing(nil, nil))
	require.NoError(t, err)
	requireBatches(t, sharedNumbers(t), r)
	assert.Equal(t, 2, calls)
	isFree(t, peer)
}

// brokenTickets changes the last byte of each message that has no header.
type brokenTickets struct {
	arrowflight.Client
	calls *int
}

func (b brokenTickets) DoGet(ctx context.Context, t *arrowflight.Ticket, opts ...grpc.CallOption) (arrowflight.FlightService_DoGetClient, error) {
	*b.calls++
	stream, err := b.Client.DoGet(ctx, t, opts...)
	asks := slices.ContainsFunc(opts, func(opt grpc.CallOption) bool { _, ok := opt.(grpc.PerRPCCredsCallOption); return ok })
	if !asks || err != nil {
		return stream, err
	}
	return brokenStream{stream}, nil
}

type brokenStream struct {
	arrowflight.FlightService_DoGetClient
}

func (b brokenStream) RecvMsg(m any) error {
	err := b.FlightService_DoGetClient.RecvMsg(m)
	changeTicket(m)
	return err
}

// changeTicket changes the last byte of a received ticket.
func changeTicket(m any) {
	if in, ok := m.(*flightdata.Incoming); ok && len(in.DataHeader) == 0 && bytes.HasPrefix(in.AppMetadata, []byte("arrowdevice-share ")) {
		in.AppMetadata[len(in.AppMetadata)-1] ^= 1
	}
}

func TestSharingCancelled(t *testing.T) {
	peer, client := sharingServer(t, "")
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	r, err := flight.DoGet(ctx, client, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
	require.NoError(t, err)
	for b, err := range r.All() {
		require.NoError(t, err)
		require.EqualValues(t, 1000, b.NumRows())
		break
	}
	cancel()
	r.Release()
	isFree(t, peer)
}

func TestSharingServerKilled(t *testing.T) {
	peer, client := sharingServer(t, "")
	r, err := flight.DoGet(background, client, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
	require.NoError(t, err)
	defer r.Release()
	n := 0
	for _, err = range r.All() {
		if n++; err != nil {
			break
		}
		peer.Kill()
	}
	require.Error(t, err)
	assert.Less(t, n, sharedBatches+1)
}

// One process gets bytes.
func TestSharingSameProcess(t *testing.T) {
	mem, err := share.NewAllocator()
	require.NoError(t, err)
	client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
		defer r.Release()
		return flight.Send(stream, r, flight.WithSharing(nil, mem))
	}}, flight.ServerOptions()...)
	r, err := flight.DoGet(background, client, ticket(), flight.WithSharing(nil, nil))
	require.NoError(t, err)
	requireBatches(t, sharedNumbers(t), r)
	assert.Zero(t, mem.ReadStats().Held)
}

func TestSharingPut(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	mem := shareAllocator(t)
	var answers []string
	r := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
	defer r.Release()
	require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, flight.WithSharing(nil, mem), said(&answers)))
	assert.Equal(t, []string{"1000 rows in 0 bytes", "1000 rows in 0 bytes", "1000 rows in 0 bytes", "1000 rows in 0 bytes", "1000 rows in 0 bytes"}, answers)
	isFree(t, peer)
}

func TestSharingExchange(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	received := &counted{Allocator: memory.DefaultAllocator}
	r := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
	answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, flight.WithSharing(nil, shareAllocator(t)), flight.WithAllocator(received))
	r.Release()
	require.NoError(t, err)
	requireBatches(t, sharedNumbers(t), answers)
	assert.Zero(t, received.bytes.Load())
	isFree(t, peer)
}

// Every type goes to the other process and back by tickets, in host memory and in memory of a GPU.
func TestGPUSharingEveryType(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	for name, dev := range map[string]device.Device{"host": device.CPUDevice(), "GPU": m.GPUs[0]} {
		t.Run(name, func(t *testing.T) {
			received := &counted{Allocator: memory.DefaultAllocator}
			opts := []any{flight.WithAllocator(received), flight.WithSharing(nil, shareAllocator(t))}
			driver := ""
			if name == "GPU" {
				driver = m.Path()
				t.Setenv("CDEVICE_CUDA_DRIVER", driver) // package share opens the default driver
				opts = []any{flight.WithAllocator(received), flight.WithSharing(m.GPUs[0], nil), flight.WithTarget(dev)}
			}
			_, client := sharingServer(t, driver)
			for _, c := range cases.All() {
				for _, v := range cases.Variants {
					t.Run(c.Name+"/"+string(v), func(t *testing.T) {
						rec := recordOf(t, c, v)
						r := readerOf(t, dev, rec.Schema(), rec, rec)
						answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, as[flight.ExchangeOption](opts)...)
						r.Release()
						require.NoError(t, err)
						requireBatches(t, []arrow.RecordBatch{rec, rec}, answers)
					})
				}
			}
			assert.Zero(t, received.bytes.Load())
		})
	}
}
