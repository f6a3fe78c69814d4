//go:build linux

package flight_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/share"
)

// TestSharingWithoutFiles is the other process. It has one descriptor for its second ticket, and no other for the memory.
func TestSharingWithoutFiles(t *testing.T) {
	owner := otherprocess.Caller(t)
	client := dialTCP(t, owner.Read())
	r, err := flight.DoGet(background, client, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
	require.NoError(t, err)
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	var b *cdevice.RecordBatch
	for b, err = range r.All() {
		if err != nil {
			break
		}
		b.Retain() // and its connection to the owner
		defer b.Release()
		next, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(next))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 1, Max: before.Max}))
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	r.Release()
	owner.Write(fmt.Sprint(err))
	require.Equal(t, "release", owner.Read())
}

// The server gives back the memory of a ticket whose opener, who lives on, had no descriptor for it.
func TestSharingOpeningFails(t *testing.T) {
	mem := shareAllocator(t)
	address := serveTCP(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
		defer r.Release()
		return flight.Send(stream, r, flight.WithSharing(nil, mem))
	}})
	p := otherprocess.Start(t, "TestSharingWithoutFiles", "")
	p.Write(address)
	require.Contains(t, p.Read(), "the ticket of a batch: share: open: this process has free descriptors for only 0 files of the memory: too many open files")
	within.Eventually(t, "no more than the batch that is open", func() bool { return mem.ReadStats().Held > 0 && mem.ReadStats().Held <= 40<<10 })
	p.Write("release")
	p.End(0)
}

// TestSharingAnotherSchema is the other process, which gets a ticket of another schema than the stream's.
func TestSharingAnotherSchema(t *testing.T) {
	owner := otherprocess.Caller(t)
	client := dialTCP(t, owner.Read())
	r, err := flight.DoGet(background, client, ticket(), flight.WithSharing(nil, nil))
	require.NoError(t, err)
	_, err = collect(r)
	owner.Write(fmt.Sprint(err))
}

// A ticket of another schema is refused, and given back.
func TestTicketOfAnotherSchema(t *testing.T) {
	mem := shareAllocator(t)
	address := serveTCP(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		_, kept := dictionaries(t, "a b")
		here, err := cdevice.WrapRecordBatch(kept[0], device.CPUDevice())
		if err != nil {
			return err
		}
		defer here.Release()
		rec, err := here.CopyToHost(stream.Context(), mem)
		if err != nil {
			return err
		}
		defer rec.Release()
		there, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		if err != nil {
			return err
		}
		defer there.Release()
		w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(schema))
		defer w.Close()
		empty := numbers(t, 0, 0)
		defer empty.Release()
		if err := w.Write(empty); err != nil {
			return err
		}
		tickets := flightticket.NewSender(stream, flightticket.Memory{}, 1<<20)
		defer tickets.Close()
		other := tickets.Issue(stream.Context(), there)
		if err := tickets.Sent(stream.Context(), other); err != nil {
			return err
		}
		if err := stream.SendMsg(other.Message); err != nil {
			return err
		}
		return tickets.WaitOpened(stream.Context())
	}})
	p := otherprocess.Start(t, "TestSharingAnotherSchema", "")
	p.Write(address)
	assert.Contains(t, p.Read(), "flight: ticket: the schema of the batch is not the stream's")
	p.End(0)
}

var started = regexp.MustCompile(`\ncreated by github.com/arrowdevice/arrowdevice/(flight|share|cdevice|internal/items)\.`)

// counts are the descriptors of the process, and its goroutines of this package and of package share, in a line.
func counts() string {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		files, err := os.ReadDir("/proc/self/fd")
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		n := len(started.FindAll(stacks, -1))
		if err != nil || n == 0 || time.Now().After(end) {
			return fmt.Sprintf("%d files, %d goroutines", len(files), n)
		}
	}
}

// Many streams with tickets leave no descriptor and no goroutine, in both processes.
func TestSharingLeavesNothing(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	mem := shareAllocator(t)
	opts := []any{flight.WithSharing(nil, mem)}
	round := func() {
		r, err := flight.DoGet(t.Context(), client, ticket(), as[flight.GetOption](opts)...)
		require.NoError(t, err)
		requireBatches(t, sharedNumbers(t), r)
		r = readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
		defer r.Release()
		require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, as[flight.PutOption](opts)...))
		abandoned := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
		defer abandoned.Release()
		answers, err := flight.DoExchange(t.Context(), client, descriptor(), abandoned, as[flight.ExchangeOption](opts)...)
		require.NoError(t, err)
		require.True(t, answers.Next(), answers.Err())
		answers.Release()
	}
	count := func() (files [2]int, said string) {
		peer.Write("count")
		var goroutines [2]int
		for i, text := range []string{counts(), peer.Read()} {
			_, err := fmt.Sscanf(text, "%d files, %d goroutines", &files[i], &goroutines[i])
			require.NoError(t, err)
		}
		return files, fmt.Sprintf("%d files, %d goroutines, here and there", files, goroutines)
	}
	round()
	isFree(t, peer)
	require.True(t, becomesFree(mem))
	before, said := count()
	for range 60 {
		round()
	}
	isFree(t, peer)
	require.True(t, becomesFree(mem))
	within.Eventually(t, "no more files than before, and no goroutine: "+said, func() bool {
		after, now := count()
		said = now
		return after[0] <= before[0] && after[1] <= before[1] && strings.Contains(now, "[0 0] goroutines")
	})
}

// shareAllocator is memory for tickets, which must be free at the end of the test.
func shareAllocator(t *testing.T, opts ...share.AllocatorOption) *share.Allocator {
	mem, err := share.NewAllocator(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.True(t, becomesFree(mem), "%d bytes are in use", mem.ReadStats().Held) })
	return mem
}

// said returns an option that keeps the results of a put.
func said(answers *[]string) flight.PutOption {
	return flight.WithPutResults(func(p *arrowflight.PutResult) error {
		*answers = append(*answers, string(p.AppMetadata))
		return nil
	})
}

// A receiver that wants memory which it can share gets copies: the memory of a ticket is another process's.
func TestSharingToShareableMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	t.Setenv("CDEVICE_CUDA_DRIVER", m.Path())
	gpu := m.GPUs[0]
	_, client := sharingServer(t, m.Path())
	r := readerOf(t, gpu, schema, sharedNumbers(t)[0])
	answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, flight.WithSharing(gpu, nil), flight.WithTarget(gpu.Shareable()))
	r.Release()
	require.NoError(t, err)
	defer answers.Release()
	require.True(t, answers.Next())
	b := answers.RecordBatch()
	ticket, err := share.Share(t.Context(), b)
	require.NoError(t, err)
	ticket.Close()
}

// A dictionary that changes in the stream is a part of each ticket.
func TestSharingDictionaries(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	s, kept := dictionaries(t, "a b", "a b", "a b c", "other")
	r := readerOf(t, device.CPUDevice(), s, kept...)
	defer r.Release()
	answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, flight.WithSharing(nil, shareAllocator(t)))
	require.NoError(t, err)
	requireBatches(t, kept, answers)
}

// Where the memory for tickets is used up, a batch is sent as bytes; so is one whose ticket is too large.
func TestSharingMixedWithBytes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	t.Run("memory", func(t *testing.T) {
		var answers []string
		r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 10), numbers(t, 10, 2000), numbers(t, 20, 10), numbers(t, 30, 2000))
		defer r.Release()
		mem := shareAllocator(t, share.WithLimit(32<<10))
		require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, flight.WithSharing(nil, mem), said(&answers)))
		require.Len(t, answers, 4)
		assert.Equal(t, "10 rows in 0 bytes", answers[0])
		assert.Equal(t, "10 rows in 0 bytes", answers[2])
		for _, i := range []int{1, 3} {
			assert.Regexp(t, "^2000 rows in [0-9]{5} bytes$", answers[i])
		}
	})
	t.Run("size", func(t *testing.T) {
		md := arrow.NewMetadata([]string{"k"}, []string{strings.Repeat("v", 3000)})
		s := arrow.NewSchema(schema.Fields(), &md) // which a ticket has, and a batch has not
		rec := array.NewRecordBatch(s, numbers(t, 0, 4).Columns(), 4)
		mem := shareAllocator(t)
		var outcomes []string
		for size := 3000; size < 4000; size += 20 {
			var answers []string
			r := readerOf(t, device.CPUDevice(), s, rec)
			err := flight.DoPut(t.Context(), client, descriptor(), r, flight.WithSharing(nil, mem), flight.WithMaxMessageSize(size), said(&answers))
			r.Release()
			outcome := "bytes"
			if err != nil {
				require.ErrorContains(t, err, "WithMaxMessageSize") // of the schema
				outcome = "error"
			} else if require.Len(t, answers, 1); answers[0] == "4 rows in 0 bytes" {
				outcome = "ticket"
			}
			outcomes = append(outcomes, outcome)
		}
		assert.Equal(t, []string{"error", "bytes", "ticket"}, slices.Compact(outcomes))
	})
}

// A ticket has the metadata of its batch, and app_metadata with it.
func TestSharingMetadata(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	b, err := cdevice.WrapRecordBatch(numbers(t, 0, 4), device.CPUDevice())
	require.NoError(t, err)
	with := b.WithMetadata(arrow.NewMetadata([]string{"k", flight.AppMetadataKey}, []string{"v", "for you"}))
	b.Release()
	given := false
	r, err := cdevice.NewRecordReaderFunc(background, schema, device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
		if given {
			return nil, io.EOF
		}
		given = true
		return with, nil
	}, nil)
	require.NoError(t, err)
	defer r.Release()
	var answers []string
	require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, flight.WithSharing(nil, shareAllocator(t)), said(&answers)))
	assert.Equal(t, []string{"4 rows in 0 bytes with for you"}, answers)
}

// A server without the option, or of arrow-go, gets bytes.
func TestSharingWithPlainServers(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, s := range map[string]*server{"plain": plainServer(), "without the option": echo(t, host(t), nil)} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, s)
			mem := shareAllocator(t)
			r := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
			defer r.Release()
			require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, flight.WithSharing(nil, mem)))
		})
	}
}

// A server that has enough returns, which ends a put whose tickets were not opened, or whose source waits.
func TestServerReturnsBeforeTheEnd(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	mem := shareAllocator(t)
	one := &arrowflight.FlightDescriptor{Type: arrowflight.DescriptorPATH, Path: []string{"one"}}
	t.Run("tickets", func(t *testing.T) {
		r := readerOf(t, device.CPUDevice(), schema, append(sharedNumbers(t), sharedNumbers(t)...)...)
		defer r.Release()
		within.Seconds(t, "DoPut", func() error { return flight.DoPut(background, client, one, r, flight.WithSharing(nil, mem)) })
	})
	t.Run("the source waits", func(t *testing.T) {
		r := stuck(t, new(atomic.Int64))()
		defer r.Release()
		within.Seconds(t, "DoPut", func() error { return flight.DoPut(background, client, one, r) })
	})
}

// A later ticket that cannot be opened ends the stream; earlier batches stay valid.
func TestSharingLaterTicketFails(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	calls := 0
	r, err := flight.DoGet(background, &laterTickets{brokenTickets{client, &calls}}, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
	require.NoError(t, err)
	got, err := collect(r)
	assert.Len(t, got, 2)
	assert.ErrorContains(t, err, "flight: the ticket of a batch: ")
	assert.ErrorIs(t, err, share.ErrBadTicket)
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	assert.Equal(t, 1, calls)
	isFree(t, peer)
}

// The tickets of a call end with its deadline, which the server may see before the context of the client does.
func TestSharingTicketsAfterTheDeadline(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	ctx := &overdue{Context: background}
	calls := 0
	r, err := flight.DoGet(ctx, &laterTickets{brokenTickets{client, &calls}}, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
	require.NoError(t, err)
	for range 2 {
		require.True(t, r.Next(), "%v", r.Err())
	}
	ctx.is.Store(true)
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), context.DeadlineExceeded)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(r.Err()))
	r.Release()
	isFree(t, peer)
}

// overdue is a context whose deadline is over, and that has not ended yet.
type overdue struct {
	context.Context
	is atomic.Bool
}

func (c *overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), c.is.Load() }

// laterTickets changes the tickets from the third on.
type laterTickets struct{ brokenTickets }

func (b *laterTickets) DoGet(ctx context.Context, t *arrowflight.Ticket, opts ...grpc.CallOption) (arrowflight.FlightService_DoGetClient, error) {
	*b.calls++
	stream, err := b.Client.DoGet(ctx, t, opts...)
	return &laterStream{FlightService_DoGetClient: stream}, err
}

type laterStream struct {
	arrowflight.FlightService_DoGetClient
	n int
}

func (b *laterStream) RecvMsg(m any) error {
	err := b.FlightService_DoGetClient.RecvMsg(m)
	if b.n++; b.n > 3 { // the schema is the first
		changeTicket(m)
	}
	return err
}

// endless is a reader of batches without end; made counts them.
func endless(t *testing.T, made *atomic.Int64) *cdevice.RecordReader {
	rec := numbers(t, 0, 1000)
	return source(t, func(context.Context, int) (arrow.RecordBatch, error) {
		made.Add(1)
		rec.Retain()
		return rec, nil
	}, nil)
}

// A client that opens no tickets, or keeps its batches, blocks the server.
func TestSharingIsBounded(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := shareAllocator(t)
	var made atomic.Int64
	address := serveTCP(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := endless(t, &made)
		defer r.Release()
		return flight.Send(stream, r, flight.WithSharing(nil, mem))
	}})
	p := otherprocess.Start(t, "TestSharingHolder", "")
	p.Write(address)
	require.Equal(t, "2 batches", p.Read())
	last := int64(-1)
	for now := made.Load(); now != last; now = made.Load() { // until the source rests
		last = now
		time.Sleep(50 * time.Millisecond)
	}
	// The client has two and one behind, three tickets were not opened, one waits for that and one behind it.
	assert.LessOrEqual(t, last, int64(9))
	assert.LessOrEqual(t, mem.ReadStats().Held, 9*int64(32<<10))
	require.NoError(t, p.Process().Kill()) // its batches are released
}

// TestSharingHolder is the other process: a client that holds two batches, and reads no more.
func TestSharingHolder(t *testing.T) {
	owner := otherprocess.Caller(t)
	client := dialTCP(t, owner.Read())
	r, err := flight.DoGet(background, client, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(1))
	require.NoError(t, err)
	for n := 1; n <= 2; n++ {
		require.True(t, r.Next(), r.Err())
		r.RecordBatch().Retain()
	}
	owner.Write("2 batches")
	owner.Read() // nothing comes: it is killed
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

// A server that opens no memory of the batch's GPU gets bytes.
func TestGPUSharingWithAServerWithoutGPU(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	_, client := sharingServer(t, "")
	var answers []string
	r := readerOf(t, m.GPUs[0], schema, numbers(t, 0, 1000))
	defer r.Release()
	require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, flight.WithSharing(m.GPUs[0], nil), said(&answers)))
	require.Len(t, answers, 1)
	assert.Regexp(t, "^1000 rows in [0-9]{5} bytes$", answers[0])
}

// Messages of app_metadata only may come between tickets.
func TestSharingWithMetadataBetween(t *testing.T) {
	peer, client := sharingServer(t, "")
	said := 0
	received := &counted{Allocator: memory.DefaultAllocator}
	opts := []any{flight.WithSharing(nil, nil), flight.WithAllocator(received)}
	r, err := flight.DoGet(background, client, &arrowflight.Ticket{Ticket: []byte("talk")}, as[flight.GetOption](append(opts, flight.WithMetadataFunc(func(b []byte) error {
		assert.Equal(t, alone, string(b))
		said++
		return nil
	})))...)
	require.NoError(t, err)
	requireBatches(t, sharedNumbers(t), r)
	assert.Equal(t, 1+sharedBatches, said)
	assert.Zero(t, received.bytes.Load(), "the batches came as bytes")
	isFree(t, peer)
}

// Copies to memory that turns out not to be shared end with the first.
func TestSharingCopiesInVainOnce(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	mem := &counting{Allocator: memory.NewGoAllocator()}
	r := readerOf(t, device.CPUDevice(), schema, sharedNumbers(t)...)
	defer r.Release()
	require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, flight.WithSharing(nil, mem)))
	assert.Equal(t, 1, mem.n)
}

// A server that has sent its headers before Receive cannot say that it takes tickets, and gets bytes.
func TestSharingAfterTheHeaders(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	address := serveTCP(t, &server{put: func(stream arrowflight.FlightService_DoPutServer) error {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
		received := &counted{Allocator: memory.DefaultAllocator}
		r, d, err := flight.Receive(stream, flight.WithSharing(nil, nil), flight.WithAllocator(received), flight.WithPrefetch(0))
		if err != nil {
			return err
		}
		defer r.Release()
		return answerPut(stream, r, d, received)
	}})
	p := otherprocess.Start(t, "TestSharingPutter", "")
	p.Write(address)
	assert.Regexp(t, "^1000 rows in [0-9]{5} bytes$", p.Read())
}

// TestSharingPutter is the other process, which puts a batch, and repeats the answer.
func TestSharingPutter(t *testing.T) {
	owner := otherprocess.Caller(t)
	client := dialTCP(t, owner.Read())
	var answers []string
	r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 1000))
	defer r.Release()
	require.NoError(t, flight.DoPut(background, client, descriptor(), r, flight.WithSharing(nil, shareAllocator(t)), said(&answers)))
	owner.Write(answers[0])
}
