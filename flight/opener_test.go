//go:build linux

package flight_test

import (
	"fmt"
	"testing"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// TestSharingWithoutFiles is the other process. It has one descriptor for its second ticket, and no other for the memory.
func TestSharingWithoutFiles(t *testing.T) {
	owner := otherprocess.Caller(t)
	conn, err := grpc.NewClient(owner.Read(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	r, err := flight.DoGet(background, arrowflight.NewClientFromConn(conn, nil), ticket(), flight.WithSharing(nil, nil), flight.WithPrefetch(0))
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
	conn, err := grpc.NewClient(owner.Read(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	r, err := flight.DoGet(background, arrowflight.NewClientFromConn(conn, nil), ticket(), flight.WithSharing(nil, nil))
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
