package flight

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
)

// Send sends the batches that are left in r, and their schema even if there are none. It returns at the
// end of r, with r's error, or when the stream does not take more. A method of a server returns its
// error, which has a status for the client; errors of r that have none get the code that they stand for,
// such as InvalidArgument for arrow.ErrInvalid.
//
// Batches in memory of a device are copied into memory of [WithAllocator], the next one while one is
// being sent: two at most. Batches in memory of the CPU, page-locked or not, are not copied, and held until
// they are sent.
//
// r stays the caller's. The end of the stream's context ends Send, and one more batch of r may be lost. If
// r's source is waiting at that time, a goroutine waits with it; the last Release of r ends that, if the
// source can be interrupted.
//
// On a client's stream, Send returns io.EOF if the server has ended the stream: RecvMsg then returns
// why.
func Send(stream Stream, r *cdevice.RecordReader, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if argument.IsNil(stream) {
		return absent("stream", "a stream of Arrow Flight")
	}
	if r == nil {
		return absent("r", "a reader")
	}
	return withStatus(send(stream, r, nil, o))
}

// send is Send, with a descriptor for the first message. io.EOF is the end of the stream on the other
// side, of which a client learns more when it receives.
func send(stream Stream, r *cdevice.RecordReader, descriptor *arrowflight.FlightDescriptor, o *options) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s := &sender{stream: stream, max: o.maxSend()}
	defer s.issued.close()
	s.next.FlightDescriptor = descriptor
	w := ipc.NewWriterWithPayloadWriter(s, append([]ipc.Option{ipc.WithSchema(r.Schema()), ipc.WithAllocator(o.mem)}, o.ipc...)...)
	records := make(chan host)
	go ahead(ctx, r, o, o.otherEnd(stream), records)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-records:
			if h.err == io.EOF {
				return cmp.Or(s.end(w), s.issued.await(ctx, 0))
			}
			if h.err != nil {
				_ = s.issued.await(ctx, 0) // the batches before the error arrive, too
				return h.err
			}
			if h.parcel != nil {
				if err := s.ticket(ctx, r.Schema(), h.parcel, o); err != nil {
					return err
				}
				continue
			}
			if err := s.write(w, h.rec); err != nil {
				return s.failure(err)
			}
		}
	}
}

// host is a record batch that the CPU can read, or the error that ended them.
type host struct {
	rec    arrow.RecordBatch
	parcel *parcel // in place of rec
	err    error
}

func (h host) release() {
	if h.parcel != nil {
		_ = h.parcel.shared.Close()
	} else {
		h.rec.Release()
	}
}

// ahead reads batches, and copies each to the host while the one before it is sent. It holds no
// reference to r: the last Release of r ends the wait of its source.
func ahead(ctx context.Context, r *cdevice.RecordReader, o *options, peer *otherEnd, to chan<- host) {
	last := host{err: fmt.Errorf("flight: the source of the batches ended its goroutine")}
	defer func() {
		if v := recover(); v != nil {
			last.err = fmt.Errorf("flight: panic in the source of the batches: %v", v)
		}
		select {
		case to <- last:
		case <-ctx.Done():
		}
	}()
	for b, err := range r.All() {
		h := host{err: err}
		if err == nil {
			h = prepared(ctx, b, o, peer)
		}
		if h.err != nil {
			last = h
			return
		}
		select {
		case to <- h:
		case <-ctx.Done():
			h.release() // mutant: deleted
			return
		}
	}
	last.err = io.EOF
}

// prepared issues a ticket for a batch, or makes it one for the CPU.
func prepared(ctx context.Context, b *cdevice.RecordBatch, o *options, peer *otherEnd) host {
	if p := o.parcel(ctx, b, peer.local(ctx)); p != nil {
		return host{parcel: p}
	}
	return toHost(ctx, b, o)
}

// toHost views or copies a batch, and gives it its metadata.
func toHost(ctx context.Context, b *cdevice.RecordBatch, o *options) (h host) {
	if accessible(b) {
		h.rec, h.err = b.HostView(ctx)
	}
	if h.err == nil && (h.rec == nil || isSliceToCopy(h.rec)) {
		if h.rec != nil {
			h.rec.Release()
		}
		h.rec, h.err = b.CopyToHost(ctx, o.mem)
	}
	if h.err == nil {
		countNulls(h.rec)
	}
	if md := b.Metadata(); h.err == nil && md.Len() > 0 {
		bare := h.rec
		defer bare.Release()
		h.rec = array.NewRecordBatchWithMetadata(bare.Schema(), bare.Columns(), bare.NumRows(), md)
	}
	return h
}

// accessible reports whether the CPU can read a batch in its place. Page-locked memory is; managed
// memory would have to move, so it is copied.
func accessible(b *cdevice.RecordBatch) bool {
	switch b.DeviceID().Type {
	case device.CPU, device.CUDAHost, device.ROCMHost:
		return true
	}
	return false
}

// sender writes the messages of arrow-go's IPC writer to a stream.
type sender struct {
	stream Stream
	max    int
	next   arrowflight.FlightData // the descriptor of the first message, and app_metadata of the batch
	custom arrow.Metadata
	issued issued
	begun  bool  // the schema was sent
	wrote  bool  // a batch was sent as bytes
	err    error // of the stream, as it was before arrow-go wrapped it
}

var _ ipc.PayloadWriter = (*sender)(nil)

func (*sender) Start() error { return nil }
func (*sender) Close() error { return nil }

// WritePayload sends a message. It does not need the payload afterwards.
func (s *sender) WritePayload(p ipc.Payload) error {
	meta := p.Meta()
	defer meta.Release()
	if schema := ipcmessage.KindOf(meta.Bytes()) == ipcmessage.Schema; schema && s.begun {
		return nil // it was sent before a ticket
	} else if schema {
		s.begun = true
	}
	m, err := newOutgoing(&arrowflight.FlightData{
		FlightDescriptor: s.next.FlightDescriptor, DataHeader: meta.Bytes(), AppMetadata: s.appMetadata(meta.Bytes()),
	}, &p)
	if err != nil {
		return err
	}
	if m.size > s.max { // mutant: never
		return invalid("FlightData", fmt.Sprintf("%d bytes in one row or dictionary, of at most %d (WithMaxMessageSize)", m.size, s.max))
	}
	if err := s.stream.SendMsg(m); err != nil {
		s.err = err
		return err
	}
	s.next.FlightDescriptor = nil
	return nil
}

// schema sends the schema, unless it was sent.
func (s *sender) schema(schema *arrow.Schema) error {
	if s.begun {
		return nil
	}
	p := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	defer p.Release()
	return s.WritePayload(p)
}

// appMetadata returns that of the batch if the message is one, and not a dictionary before it.
func (s *sender) appMetadata(metadata []byte) []byte {
	if len(s.next.AppMetadata) == 0 || ipcmessage.KindOf(metadata) != ipcmessage.RecordBatch {
		return nil
	}
	return s.next.AppMetadata
}

// failure is the stream's error, if that is what an error comes from.
func (s *sender) failure(err error) error {
	if err != nil && s.err != nil {
		return s.err
	}
	return err
}

// end sends the schema, if there was no batch. Where there were tickets only, arrow-go's writer has nothing to end.
func (s *sender) end(w *ipc.Writer) error {
	if s.begun && !s.wrote {
		return nil
	}
	return s.failure(w.Close())
}

// write writes a record batch, which it takes, in parts that are small enough.
func (s *sender) write(w *ipc.Writer, rec arrow.RecordBatch) error {
	defer rec.Release() // mutant: deleted
	s.wrote = true
	rest := rec
	if with, ok := rec.(arrow.RecordBatchWithMetadata); ok && with.Metadata().Len() > 0 {
		s.custom = s.split(with.Metadata())
		rest = array.NewRecordBatchWithMetadata(rec.Schema(), rec.Columns(), rec.NumRows(), s.custom)
		defer rest.Release()
	}
	defer func() { s.next.AppMetadata, s.custom = nil, arrow.Metadata{} }()
	// mutant: return s.parts(w, rest)
	return guarded("arrow-go's IPC writer", func() error { return s.parts(w, rest) })
}

// split takes the app_metadata out of a batch's metadata.
func (s *sender) split(md arrow.Metadata) arrow.Metadata {
	var keys, values []string
	for i, key := range md.Keys() {
		if key == AppMetadataKey {
			s.next.AppMetadata = []byte(md.Values()[i])
		} else {
			keys, values = append(keys, key), append(values, md.Values()[i])
		}
	}
	return arrow.NewMetadata(keys, values)
}
