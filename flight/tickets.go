package flight

import (
	"bytes"
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/share"
)

// ticketMark is how the app_metadata of a message with a ticket begins: with a word that only the process that receives it
// and others of its place can say, which no other app_metadata has.
func ticketMark(process string) string { return "arrowdevice-share " + proof("ticket", process) + "\n" }

// parcel is a ticket as it is sent.
type parcel struct {
	shared *share.Shared
	data   []byte // the app_metadata of its message
}

// parcel issues a ticket for a batch. It returns nil if the batch must be sent as bytes.
func (o *options) parcel(ctx context.Context, b *cdevice.RecordBatch, to *localPeer) *parcel {
	if to == nil || !to.opens(b) {
		return nil
	}
	shared := o.sharing.share(ctx, b)
	if shared == nil {
		return nil
	}
	data := append([]byte(ticketMark(to.process)), shared.Ticket()...)
	if sizeOf(fieldAppMetadata, len(data)) > o.maxSend() { // mutant: never
		_ = shared.Close() // mutant: deleted
		return nil
	}
	return &parcel{shared, data}
}

// issued are the tickets that were sent, and that the other end may not have opened, oldest first.
type issued []*share.Shared

// await waits until at most n were not opened. A ticket that was opened is withdrawn: its opener keeps the batch.
func (i *issued) await(ctx context.Context, n int) error {
	for len(*i) > n {
		if err := (*i)[0].WaitOpened(ctx); err != nil { // mutant: deleted
			return err
		}
		_ = (*i)[0].Close()
		*i = (*i)[1:]
	}
	return nil
}

func (i *issued) close() {
	for _, s := range *i { // mutant: deleted
		_ = s.Close()
	}
	*i = nil
}

// ticket sends a ticket, behind the schema, and takes it.
func (s *sender) ticket(ctx context.Context, schema *arrow.Schema, p *parcel, o *options) error {
	s.issued = append(s.issued, p.shared)
	// mutant: if err := s.issued.await(ctx, 1<<30); err != nil {
	if err := s.issued.await(ctx, max(o.prefetch, 1)); err != nil {
		return err
	}
	if err := s.schema(schema); err != nil {
		return s.failure(err)
	}
	m, err := newOutgoing(&arrowflight.FlightData{AppMetadata: p.data}, nil)
	if err != nil {
		return err
	}
	return s.stream.SendMsg(m)
}

// ticketOf returns the ticket that a message has in place of a batch, or nil.
func (m *messages) ticketOf(in *incoming) share.Ticket {
	// mutant: if m.mark == "" || len(in.DataHeader) > 0 || !bytes.HasPrefix(in.AppMetadata, nil) || len(in.AppMetadata) < len(m.mark) {
	if m.mark == "" || len(in.DataHeader) > 0 || !bytes.HasPrefix(in.AppMetadata, []byte(m.mark)) {
		return nil
	}
	return share.Ticket(in.AppMetadata[len(m.mark):])
}

// ticket returns the ticket that comes next, or nil if something else does. app_metadata before it goes to its function.
func (m *messages) ticket() (share.Ticket, error) {
	for m.mark != "" && m.err == nil {
		if m.first == nil {
			m.first, m.err = m.receive()
			continue
		}
		if len(m.first.DataHeader) > 0 {
			return nil, nil
		}
		in := m.first
		m.first = nil
		if m.err = m.withoutHeader(in); m.err != nil {
			break
		}
		if t := m.ticketOf(in); t != nil {
			return t, nil
		}
		m.err = m.alone(in.AppMetadata)
	}
	return nil, m.err
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
	if !b.Schema().Equal(r.schema) { // mutant: never
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
	case b.DeviceID() == want.ID() && !isShareable(want): // memory of another process cannot be shared again
		b.Retain()
		return b, nil
	case r.o.dev == nil:
		return copyToHost(ctx, b, r.o.mem)
	}
	return b.CopyTo(ctx, r.o.dev)
}

// isShareable reports whether other processes can open the memory of a device.
func isShareable(dev device.Device) bool {
	kinds, ok := dev.(device.MemoryKinds)
	return ok && kinds.MemoryKind() == device.ShareableMemory
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
	r.messages = newMessages(r.messages.ctx, stream, r.o)
	if _, err := r.start(); err != nil {
		return err
	}
	if !r.schema.Equal(schema) {
		return invalid("schema", "the server answers the same ticket with another one")
	}
	return nil
}
