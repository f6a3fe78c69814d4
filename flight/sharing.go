package flight

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/metadata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/share"
)

// sharingHeader is the header of a call that takes tickets, and of an answer that may have them.
const sharingHeader = "arrowdevice-share"

// ticketMark is how the app_metadata of a message with a ticket begins, after the headers were exchanged.
var ticketMark = []byte("arrowdevice-share 1\n")

// WithSharing makes [Send], in answer to a [DoGet] that has the option too, send tickets of package share
// in place of bodies if the other end is another process of this user on this machine. Any other gets bytes.
//
// The batches must be in memory that package share can share; others are copied: those in memory of the
// CPU to mem, a share.Allocator, and those of a GPU to dev, its cudaalloc.Device.Shareable. Without mem or
// dev, which may be nil, they are sent as bytes. DoGet needs neither.
//
// Send holds a batch until DoGet's caller has released its own. It waits while as many tickets as
// [WithPrefetch] says, and at least one, were not opened, and at its end until all were; those that were
// opened are memory in use of the caller of DoGet. The end of the stream's context ends the wait, and
// withdraws the tickets that were not opened.
//
// DoGet asks again, for bytes, if it cannot open the first ticket before any batch; a later ticket that it
// cannot open is an error. The server must then be able to answer the same ticket of Flight twice.
func WithSharing(dev device.Device, mem memory.Allocator) Option {
	return func(o *options) {
		o.sharing = &sharing{}
		if !fielderr.IsNil(dev) {
			o.sharing.dev = dev
		}
		if !fielderr.IsNil(mem) {
			o.sharing.mem = mem
		}
	}
}

// sharing has the memory that batches are copied to, either nil.
type sharing struct {
	dev device.Device
	mem memory.Allocator
}

// place is what this process says of itself: boot, user and a random number. It is empty where there are no tickets.
var place = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var process [16]byte
	if _, failed := rand.Read(process[:]); err != nil || failed != nil {
		return ""
	}
	return "1 " + strings.TrimSpace(string(boot)) + " " + strconv.Itoa(os.Geteuid()) + " " + hex.EncodeToString(process[:])
})

// neighbours reports whether both are places of one user on one machine, in two processes.
func neighbours(a, b string) bool {
	i, j := strings.LastIndexByte(a, ' '), strings.LastIndexByte(b, ' ')
	return i > 0 && j > 0 && a[:i] == b[:j] && a[i:] != b[j:]
}

// asking adds the header of a call that takes tickets.
func (o *options) asking(ctx context.Context) context.Context {
	if o.sharing == nil || place() == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, sharingHeader, place())
}

// offered reports whether the server's answer may have tickets. The headers have arrived with the first message.
func (o *options) offered(stream Stream) bool {
	answer, ok := stream.(interface{ Header() (metadata.MD, error) })
	if o.sharing == nil || !ok {
		return false
	}
	md, err := answer.Header()
	v := md.Get(sharingHeader)
	return err == nil && len(v) == 1 && neighbours(v[0], place())
}

// offer reports whether the client takes tickets, and tells it that they come.
func (o *options) offer(stream Stream) bool {
	server, ok := stream.(interface{ SetHeader(metadata.MD) error })
	if o.sharing == nil || !ok {
		return false
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	v := md.Get(sharingHeader)
	return len(v) == 1 && neighbours(v[0], place()) && server.SetHeader(metadata.Pairs(sharingHeader, place())) == nil
}

// share issues a ticket for a batch, or for a copy of it. It returns nil if the batch must be sent as bytes.
func (s *sharing) share(ctx context.Context, b *cdevice.RecordBatch) (*share.Shared, error) {
	shared, err := share.Share(ctx, b)
	if !errors.Is(err, device.ErrNotSupported) {
		return shared, err
	}
	there, err := s.copy(ctx, b)
	if there == nil || err != nil {
		return nil, err
	}
	defer there.Release()
	shared, err = share.Share(ctx, there)
	if errors.Is(err, device.ErrNotSupported) {
		return nil, nil
	}
	return shared, err
}

// copy copies a batch to memory that can be shared. It returns nil if there is none.
func (s *sharing) copy(ctx context.Context, b *cdevice.RecordBatch) (there *cdevice.RecordBatch, err error) {
	switch {
	case accessible(b) && s.mem != nil:
		there, err = copyToHost(ctx, b, s.mem)
	case !accessible(b) && s.dev != nil && s.dev.ID() == b.DeviceID():
		there, err = b.CopyTo(ctx, s.dev)
	}
	if there == nil || err != nil || b.Metadata().Len() == 0 {
		return there, err
	}
	defer there.Release()
	return there.WithMetadata(b.Metadata()), nil
}

func copyToHost(ctx context.Context, b *cdevice.RecordBatch, mem memory.Allocator) (*cdevice.RecordBatch, error) {
	rec, err := b.CopyToHost(ctx, mem)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return cdevice.WrapRecordBatch(rec, device.CPUDevice())
}

// issued are the tickets that were sent, and that the other end may not have opened, oldest first.
type issued []*share.Shared

// await waits until at most n were not opened. A ticket that was opened is withdrawn: its opener keeps the batch.
func (i *issued) await(ctx context.Context, n int) error {
	for len(*i) > n {
		if err := (*i)[0].WaitOpened(ctx); err != nil {
			return err
		}
		_ = (*i)[0].Close()
		*i = (*i)[1:]
	}
	return nil
}

func (i *issued) close() {
	for _, s := range *i {
		_ = s.Close()
	}
	*i = nil
}

// ticket sends a ticket, behind the schema, and takes it.
func (s *sender) ticket(ctx context.Context, schema *arrow.Schema, shared *share.Shared, o *options) error {
	s.issued = append(s.issued, shared)
	if err := s.issued.await(ctx, max(o.prefetch, 1)); err != nil {
		return err
	}
	if err := s.schema(schema, o); err != nil {
		return err
	}
	m, err := newOutgoing(&arrowflight.FlightData{AppMetadata: append(bytes.Clone(ticketMark), shared.Ticket()...)}, nil)
	if err != nil {
		return err
	}
	if m.size > s.max {
		return invalid("FlightData", fmt.Sprintf("a ticket of %d bytes, of at most %d (WithMaxMessageSize)", m.size, s.max))
	}
	return s.stream.SendMsg(m)
}

// ticketOf returns the ticket that a message has in place of a batch, or nil.
func (m *messages) ticketOf(in *incoming) share.Ticket {
	if !m.tickets || len(in.DataHeader) > 0 || !bytes.HasPrefix(in.AppMetadata, ticketMark) {
		return nil
	}
	return share.Ticket(in.AppMetadata[len(ticketMark):])
}

// ticket returns the ticket that comes next, or nil if something else does.
func (m *messages) ticket() (share.Ticket, error) {
	if !m.tickets || m.err != nil {
		return nil, m.err
	}
	if m.first == nil {
		in, err := m.receive()
		if err != nil {
			m.err = err
			return nil, err
		}
		m.first = in
	}
	t := m.ticketOf(m.first)
	if t != nil {
		m.first.drop()
		m.first = nil
	}
	return t, nil
}

// openError is the error of a ticket that could not be opened.
type openError struct{ error }

func (e openError) Unwrap() error { return e.error }

// open returns the batch of a ticket where the receiver wants it.
func (r *receiver) open(ctx context.Context, t share.Ticket) (*cdevice.RecordBatch, error) {
	b, err := share.Open(ctx, t)
	if err != nil {
		return nil, openError{fmt.Errorf("flight: the ticket of a batch: %w", err)}
	}
	defer b.Release()
	if !b.Schema().Equal(r.schema) {
		return nil, invalid("ticket", "a batch of another schema than the stream's")
	}
	if r.o.validate {
		if err := b.ValidateFull(ctx); err != nil {
			return nil, err
		}
	}
	there, err := r.place(ctx, b)
	if err != nil || b.Metadata().Len() == 0 {
		return there, err
	}
	defer there.Release()
	return there.WithMetadata(b.Metadata()), nil
}

// place returns a batch of its own where the receiver wants it: b itself if it is there.
func (r *receiver) place(ctx context.Context, b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	want := device.CPUDevice()
	if r.o.dev != nil {
		want = r.o.dev
	}
	switch {
	case b.DeviceID() == want.ID():
		b.Retain()
		return b, nil
	case r.o.dev == nil:
		return copyToHost(ctx, b, r.o.mem)
	}
	return b.CopyTo(ctx, r.o.dev)
}

// restart asks for the batches again, as bytes.
func (r *receiver) restart() error {
	stream, err := r.again()
	if err != nil {
		return err
	}
	r.again = nil
	schema := r.schema
	r.finish()
	r.messages = newMessages(stream, r.o)
	if _, err := r.start(); err != nil {
		return err
	}
	if !r.schema.Equal(schema) {
		return invalid("schema", "the server answers the same ticket with another one")
	}
	return nil
}
