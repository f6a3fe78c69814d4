package flight

import (
	"cmp"
	"context"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
)

// Send sends the schema and the remaining batches of r. It returns at the end of r, with r's error, or when the stream
// accepts no more messages. A method of a server returns the error of Send, which has a gRPC status: errors of r without one
// get the code for their cause, such as InvalidArgument for arrow.ErrInvalid. On a client's stream, Send returns io.EOF if
// the server has ended the stream: RecvMsg then returns the cause.
//
// Batches in memory of a device are copied to memory of [WithAllocator], large ones while another is sent. Batches in memory
// of the CPU, pinned or not, are not copied, and held until they are sent. SendMsg of the stream may be called on a goroutine
// that Send starts, one call at a time, and not after Send has returned.
//
// A column of a type that an IPC schema cannot describe, which would arrive as another, is an error that names it and wraps
// arrow.ErrNotImplemented, and nothing is sent: a dictionary whose values are of an extension type or a dictionary, and an
// extension type over a dictionary or over another one.
//
// r stays the caller's. The end of the stream's context ends Send, and one more batch of r may be lost. If r's source is
// waiting then, a goroutine waits with it until the last Release of r, if the source can be interrupted.
func Send(stream Stream, r *cdevice.RecordReader, opts ...SendOption) error {
	if err := notNil(stream, "Send", "stream", "a stream of Arrow Flight"); err != nil {
		return err
	}
	if r == nil {
		return absent("Send", "r", "a reader")
	}
	o, err := newOptions("Send", opts)
	if err != nil {
		return err
	}
	return withStatus(send(stream, r, nil, o))
}

// send implements Send, with a descriptor for the first message.
func send(stream Stream, r *cdevice.RecordReader, descriptor *arrowflight.FlightDescriptor, o *options) error {
	s := &sender{stream: stream, max: o.maxSend(), descriptor: descriptor}
	if err := guarded(typesOfSchema, func() error { return s.plan(r.Schema(), o) }); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	if o.acceptsTickets() {
		s.tickets = flightticket.NewSender(stream, o.copies, s.max)
		defer s.tickets.Close()
	}
	w := ipc.NewWriterWithPayloadWriter(s, append([]ipc.Option{ipc.WithSchema(r.Schema()), ipc.WithAllocator(o.mem)}, o.ipc...)...)
	defer s.close(w) // mutant: deleted
	return s.all(ctx, w, r, o.mem)
}

// plan determines how batches of a schema are written. It returns an error for a type that an IPC schema cannot describe.
func (s *sender) plan(schema *arrow.Schema, o *options) error {
	if e := ipcmessage.CheckTypes(schema); e != nil {
		return &Error{e.Field, e.Text, arrow.ErrNotImplemented}
	}
	if plan := flatPlan(schema); plan != nil && len(o.ipc) == 0 {
		s.flat = &flatWriter{plan: plan}
	}
	return nil
}

// next sends what was prepared, which it takes. more is false at the end.
func (s *sender) next(ctx context.Context, w *ipc.Writer, schema *arrow.Schema, next outgoing) (more bool, err error) {
	switch {
	case next.err == io.EOF:
		return false, cmp.Or(s.end(w), s.tickets.WaitOpened(ctx))
	case next.err != nil:
		_ = s.tickets.WaitOpened(ctx) // the batches before the error arrive, too
		return false, next.err
	}
	err = s.send(ctx, w, schema, next)
	return err == nil, err
}

// all sends the batches of r. A goroutine prepares them, and sends those itself that take no longer to send than to pass to
// another goroutine. While one of the others is sent here, the next is copied to the host. The end of ctx ends all even
// while r's source is waiting, and nothing is sent after that.
func (s *sender) all(ctx context.Context, w *ipc.Writer, r *cdevice.RecordReader, mem memory.Allocator) error {
	var (
		sending  sync.Mutex // held from the beginning of a batch's turn until it is sent
		ended    bool
		done     = make(chan error, 1)
		prepared = make(chan outgoing)
	)
	send := func(next outgoing) (more bool) {
		defer sending.Unlock()
		more, err := s.next(ctx, w, r.Schema(), next)
		if !more {
			ended = true
			done <- err
		}
		return more
	}
	go prepare(ctx, r, s.tickets, mem, func(next outgoing) bool {
		sending.Lock()
		if ended { // mutant: never
			sending.Unlock()
			next.release() // mutant: deleted
			return false
		}
		if passes(r.DeviceType(), next) {
			select {
			case prepared <- next:
				return true
			case <-ctx.Done():
				sending.Unlock()
				next.release()
				return false
			}
		}
		return send(next)
	})
	for {
		select {
		case next := <-prepared:
			if !send(next) {
				return <-done
			}
		case err := <-done:
			return err
		case <-ctx.Done():
			sending.Lock()
			defer sending.Unlock()
			ended = true
			return ctx.Err()
		}
	}
}

// smallBatch is the size below which it takes longer to pass a batch to another goroutine than to send it.
const smallBatch = 64 << 10

// passes reports whether a batch of a reader's device is passed to another goroutine, to be sent while the next is prepared.
func passes(from device.Type, next outgoing) bool {
	switch {
	case next.ticket != nil:
		return true
	case next.rec == nil || flightticket.ReadInPlace(from):
		return false
	}
	return bound(next.rec) > smallBatch
}

// sender writes the messages of arrow-go's IPC writer to a stream.
type sender struct {
	stream  Stream
	max     int
	tickets *flightticket.Sender // nil: no tickets
	flat    *flatWriter          // nil: arrow-go writes the batches

	descriptor  *arrowflight.FlightDescriptor // of the first message
	appMetadata []byte                        // of the batch that is being sent
	custom      arrow.Metadata                // of that batch
	begun       bool                          // the schema was sent
	wrote       bool                          // arrow-go's writer began to send a batch
	err         error                         // of the stream; arrow-go wraps it
}

var _ ipc.PayloadWriter = (*sender)(nil)

// Start does nothing.
func (*sender) Start() error { return nil }

// Close does nothing.
func (*sender) Close() error { return nil }

// WritePayload sends a message, and borrows the payload.
func (s *sender) WritePayload(p ipc.Payload) error {
	meta := p.Meta()
	defer meta.Release()
	fd := &arrowflight.FlightData{FlightDescriptor: s.descriptor, DataHeader: meta.Bytes()}
	switch ipcmessage.KindOf(meta.Bytes()) {
	case ipcmessage.Schema:
		if s.begun {
			return nil // it was sent before a ticket
		}
		s.begun = true
	case ipcmessage.DictionaryBatch:
		s.wrote = true
	case ipcmessage.RecordBatch:
		s.wrote, fd.AppMetadata = true, s.appMetadata
	}
	m, err := flightdata.NewOutgoing(fd, &p)
	if err != nil {
		return err
	}
	if m.Size() > s.max { // mutant: never
		return invalid("FlightData", "%d bytes in one row or dictionary, of at most %d (WithMaxMessageSize)", m.Size(), s.max)
	}
	if err := s.stream.SendMsg(m); err != nil {
		s.err = err
		return err
	}
	s.descriptor = nil
	return nil
}

// cause returns the stream's error in place of err, if there is one.
func (s *sender) cause(err error) error {
	if err != nil && s.err != nil {
		return s.err
	}
	return err
}

// end sends the schema, if there was no batch. If there were tickets only, arrow-go's writer has nothing to end.
func (s *sender) end(w *ipc.Writer) error {
	if s.begun && !s.wrote {
		return nil
	}
	return s.cause(guarded(ipcWriter, w.Close))
}

// close releases the dictionaries that w keeps for the next batch. A writer that wrote nothing would send the schema.
func (s *sender) close(w *ipc.Writer) {
	if s.wrote { // mutant: always
		_ = w.Close()
	}
}

// send sends a batch, which it takes.
func (s *sender) send(ctx context.Context, w *ipc.Writer, schema *arrow.Schema, b outgoing) error {
	if b.ticket == nil {
		return s.cause(s.write(w, b.rec))
	}
	if err := s.tickets.Sent(ctx, b.ticket); err != nil {
		return err
	}
	if err := s.begin(schema); err != nil {
		return err
	}
	return s.stream.SendMsg(b.ticket.Message)
}

// What calls the methods of extension types of the program, which may panic, as errors name it.
const (
	ipcWriter     = "arrow-go's IPC writer"
	typesOfSchema = "a data type of the schema"
)

// begin sends the schema, unless that was done.
func (s *sender) begin(schema *arrow.Schema) error {
	if s.begun {
		return nil
	}
	return guarded(ipcWriter, func() error {
		p := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
		defer p.Release()
		return s.WritePayload(p)
	})
}

// writeFlat sends a record batch without arrow-go's writer, and reports whether it did: not if one message has no room for it.
func (s *sender) writeFlat(rec arrow.RecordBatch) (sent bool, err error) {
	if s.flat == nil || s.custom.Len() > 0 {
		return false, nil
	}
	m, err := s.flat.message(rec, s.appMetadata)
	if m == nil || err != nil || m.Size() > s.max {
		return false, err
	}
	if err := s.begin(rec.Schema()); err != nil {
		return false, err
	}
	return true, s.stream.SendMsg(m)
}

// write writes a record batch, which it takes, in parts that are small enough.
func (s *sender) write(w *ipc.Writer, rec arrow.RecordBatch) error {
	defer rec.Release() // mutant: deleted
	rest := rec
	md := metadataOf(rec)
	if md.Len() > 0 {
		s.splitMetadata(md)
		defer func() { s.appMetadata, s.custom = nil, arrow.Metadata{} }()
	}
	if sent, err := s.writeFlat(rec); sent || err != nil {
		return s.cause(err)
	}
	if md.Len() > 0 {
		rest = array.NewRecordBatchWithMetadata(rec.Schema(), rec.Columns(), rec.NumRows(), s.custom)
		defer rest.Release()
	}
	// mutant: return s.parts(w, rest)
	return guarded(ipcWriter, func() error { return s.parts(w, rest) })
}

// splitMetadata separates the app_metadata from a batch's metadata.
func (s *sender) splitMetadata(md arrow.Metadata) {
	var keys, values []string
	for i, key := range md.Keys() {
		if key == AppMetadataKey {
			s.appMetadata = []byte(md.Values()[i])
		} else {
			keys, values = append(keys, key), append(values, md.Values()[i])
		}
	}
	s.custom = arrow.NewMetadata(keys, values)
}
