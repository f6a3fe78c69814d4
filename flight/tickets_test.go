//go:build linux

package flight_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/share"
)

// brokenTickets changes the last byte of each ticket, from a message on. The first message is the schema.
type brokenTickets struct {
	arrowflight.Client
	from, calls int
}

func (b *brokenTickets) DoGet(ctx context.Context, t *arrowflight.Ticket, opts ...grpc.CallOption) (arrowflight.FlightService_DoGetClient, error) {
	b.calls++
	stream, err := b.Client.DoGet(ctx, t, opts...)
	return &brokenStream{stream, b.from}, err
}

type brokenStream struct {
	arrowflight.FlightService_DoGetClient
	left int
}

func (b *brokenStream) RecvMsg(m any) error {
	err := b.FlightService_DoGetClient.RecvMsg(m)
	b.left--
	in, ok := m.(*flightdata.Incoming)
	if ok && b.left < 0 && len(in.DataHeader) == 0 && bytes.HasPrefix(in.AppMetadata, []byte("arrowdevice-share ")) {
		in.AppMetadata[len(in.AppMetadata)-1] ^= 1
	}
	return err
}

// If the first ticket cannot be opened, the client asks again, for bytes. A later one ends the stream; earlier batches stay
// valid. The tickets of a call end with its deadline, which the server may see before the context of the client does.
func TestTicketsThatCannotBeOpened(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, server := sharingServer(t, "")
	first := &brokenTickets{server, 0, 0}
	r, err := get(first, "", flight.WithSharing(nil, nil))
	require.NoError(t, err)
	requireBatches(t, sharedNumbers(t), r)
	assert.Equal(t, 2, first.calls)

	third := &brokenTickets{server, 3, 0}
	r, err = get(third, "", flight.WithSharing(nil, nil), flight.WithPrefetch(0))
	require.NoError(t, err)
	got, err := collect(r)
	assert.Len(t, got, 2)
	assert.ErrorContains(t, err, "flight: the ticket of a batch: ")
	assert.ErrorIs(t, err, share.ErrBadTicket)
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	assert.Equal(t, 1, third.calls)

	ctx := &overdue{Context: background}
	r, err = flight.DoGet(ctx, third, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
	require.NoError(t, err)
	for range 2 {
		require.True(t, r.Next(), "%v", r.Err())
	}
	ctx.ended.Store(true)
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), context.DeadlineExceeded)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(r.Err()))
	r.Release()
	isFree(t, peer)
}

// The server releases the batch of a ticket that its opener, which goes on, had no descriptor for.
func TestSharingOpeningFails(t *testing.T) {
	mem := shareAllocator(t)
	p := sharingClient(t, "", &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := sharedReader(t)
		defer r.Release()
		return flight.Send(stream, r, flight.WithSharing(nil, mem))
	}}, "get without descriptors")
	require.Contains(t, p.Read(), "the ticket of a batch: share: Open: this process has free descriptors for only 0 files of the memory: ")
	within.Eventually(t, "no more than the batch that is open", func() bool { return mem.ReadStats().Held > 0 && mem.ReadStats().Held <= 40<<10 })
	p.Write("release")
	p.End(0)
}

// A ticket of another schema than the stream's is refused, and released.
func TestTicketOfAnotherSchema(t *testing.T) {
	mem := shareAllocator(t)
	p := sharingClient(t, "", &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		_, kept := dictionaries(t, "a b")
		r := readerOf(t, device.CPUDevice(), kept[0].Schema(), kept...)
		defer r.Release()
		if !r.Next() {
			return r.Err()
		}
		w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(schema))
		defer w.Close()
		if err := w.Write(numbers(t, 0, 0)); err != nil {
			return err
		}
		tickets := flightticket.NewSender(stream, flightticket.Memory{Host: mem}, 1<<20)
		defer tickets.Close()
		other := tickets.Issue(stream.Context(), r.RecordBatch())
		if err := tickets.Sent(stream.Context(), other); err != nil {
			return err
		}
		if err := stream.SendMsg(other.Message); err != nil {
			return err
		}
		return tickets.WaitOpened(stream.Context())
	}}, "get an error")
	assert.Contains(t, p.Read(), "flight: ticket: the schema of the batch is not the stream's")
	p.End(0)
}

// An error of the server's reader comes behind the batches before it, although their tickets end with the call.
func TestSharingErrorOfTheReader(t *testing.T) {
	peer, client := sharingServer(t, "")
	for range 20 {
		r, err := get(client, "fail", flight.WithSharing(nil, nil))
		require.NoError(t, err)
		recs, err := collect(r)
		assert.Len(t, recs, sharedBatches)
		require.ErrorContains(t, err, "no such column")
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		isFree(t, peer)
	}
}

// The end of the context ends the stream, and so does that of the server's process.
func TestSharingEnds(t *testing.T) {
	peer, client := sharingServer(t, "")
	for _, end := range []string{"cancel", "kill"} {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		r, err := flight.DoGet(ctx, client, ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
		require.NoError(t, err)
		require.True(t, r.Next(), "%v", r.Err())
		require.EqualValues(t, 1000, r.RecordBatch().NumRows())
		if end == "cancel" {
			cancel()
			r.Release()
			isFree(t, peer)
			continue
		}
		peer.Kill()
		_, err = collect(r)
		require.Error(t, err)
	}
}

// A server that has enough returns, which ends a put whose tickets were not opened, or whose source waits.
func TestServerReturnsBeforeTheEnd(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, client := sharingServer(t, "")
	one := &arrowflight.FlightDescriptor{Type: arrowflight.DescriptorPATH, Path: []string{"one"}}
	t.Run("tickets", func(t *testing.T) {
		r := readerOf(t, device.CPUDevice(), schema, append(sharedNumbers(t), sharedNumbers(t)...)...)
		defer r.Release()
		mem := shareAllocator(t)
		within.Seconds(t, "DoPut", func() error { return flight.DoPut(background, client, one, r, flight.WithSharing(nil, mem)) })
	})
	t.Run("the source waits", func(t *testing.T) {
		r := stuck(t, new(atomic.Int64))()
		defer r.Release()
		within.Seconds(t, "DoPut", func() error { return flight.DoPut(background, client, one, r) })
	})
}

var started = regexp.MustCompile(`\ncreated by github.com/arrowdevice/arrowdevice/(flight|share|cdevice|internal/items)\.`)

// counts are the descriptors of the process, and its goroutines of this package and of package share, in a line.
func counts() (line string) {
	within.Becomes(10*time.Second, func() bool {
		files, err := os.ReadDir("/proc/self/fd")
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		n := len(started.FindAll(stacks, -1))
		line = fmt.Sprintf("%d files, %d goroutines", len(files), n)
		return err != nil || n == 0
	})
	return line
}

// Many streams with tickets leave no descriptor and no goroutine, in both processes.
func TestSharingLeavesNothing(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	peer, client := sharingServer(t, "")
	mem := shareAllocator(t)
	tickets := flight.WithSharing(nil, mem)
	round := func() {
		r, err := get(client, "", tickets)
		require.NoError(t, err)
		requireBatches(t, sharedNumbers(t), r)
		_, err = put(t, client, sharedReader(t), tickets)
		require.NoError(t, err)
		answers, err := exchange(t, client, sharedReader(t), tickets)
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

// A client that opens no tickets, or keeps its batches, blocks the server.
func TestSharingIsBounded(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := shareAllocator(t)
	var made atomic.Int64
	p := sharingClient(t, "", &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := repeated(t, numbers(t, 0, 1000), 0, &made)
		defer r.Release()
		return flight.Send(stream, r, flight.WithSharing(nil, mem))
	}}, "hold two batches")
	require.Equal(t, "2 batches", p.Read())
	// The client has two and one behind, three tickets were not opened, one waits for that and one behind it.
	assert.LessOrEqual(t, rest(&made), int64(9))
	assert.LessOrEqual(t, mem.ReadStats().Held, 9*int64(32<<10))
	require.NoError(t, p.Process().Kill()) // its batches are released
}
