package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/share"
)

// messages reads the messages of a stream for arrow-go's IPC reader, on one goroutine at a time. Memory that an error leaves
// behind is freed by the end of the stream.
type messages struct {
	refs     atomic.Int64
	ctx      context.Context // ends the messages
	stream   Stream
	in       *flightdata.Incoming // the message that was received last
	mem      *flightdata.Tracker
	check    *ipcmessage.Checker
	values   map[int64]*arrow.Schema // of the values of each dictionary, once the schema was read
	copies   bool                    // bodies of other codecs are copied to memory of mem
	max      int
	metadata func([]byte) error
	tickets  *flightticket.Receiver // nil: no tickets are expected

	pending     *flightdata.Incoming // received, and not read
	checked     *ipc.Message         // not read yet, since it is no flat batch
	current     *ipc.Message
	appMetadata []byte // of the message that was read last
	bodySize    int    // of that message
	err         error  // that ended the messages; arrow-go keeps the text only
}

var _ ipc.MessageReader = (*messages)(nil)

func newMessages(ctx context.Context, stream Stream, tickets bool, o *options) *messages {
	m := &messages{
		ctx: ctx, stream: stream, in: flightdata.NewIncoming(o.mem), mem: flightdata.NewTracker(o.mem), check: ipcmessage.NewChecker(o.maxReceive()),
		copies: o.target != nil, max: o.maxReceive(), metadata: o.metadata,
	}
	if tickets {
		m.tickets = &flightticket.Receiver{Target: o.target, Host: o.mem}
	}
	if o.deviceType() != device.CPU && !tickets { // copies to a GPU gather small buffers, wherever they are
		m.in.HeapBelow = smallBatch
	}
	m.refs.Add(1)
	return m
}

// peek receives the next message, unless that was done.
func (m *messages) peek() (*flightdata.Incoming, error) {
	if m.pending == nil && m.err == nil {
		m.pending, m.err = m.receive()
	}
	return m.pending, m.err
}

// receive receives a message from the stream.
func (m *messages) receive() (*flightdata.Incoming, error) {
	if err := m.ctx.Err(); err != nil { // gRPC still returns the messages that have arrived
		return nil, fmt.Errorf("flight: %w", err)
	}
	in := m.in
	in.Reset()
	if err := m.stream.RecvMsg(in); err != nil {
		return nil, err
	}
	if err := in.Err(); err != nil {
		return nil, malformed(err)
	}
	if n := in.BodySize(); n > m.max { // mutant: never
		return nil, invalid("FlightData.data_body", "%d bytes, of at most %d (WithMaxMessageSize)", n, m.max)
	}
	return in, nil
}

// Message returns the next message, borrowed until the next call, and drops the one before it.
func (m *messages) Message() (*ipc.Message, error) {
	m.drop()
	if m.checked != nil {
		m.current, m.checked = m.checked, nil
		return m.current, nil
	}
	for {
		in, err := m.peek()
		if err != nil {
			return nil, err
		}
		m.pending = nil
		if len(in.DataHeader) > 0 {
			m.current, _, m.err = m.message(in, nil)
			return m.current, m.err
		}
		ticket, err := m.withoutHeader(in)
		if ticket != nil {
			err = invalid("FlightData.app_metadata", "a ticket between the messages of a batch")
		}
		m.err = err
	}
}

// flat returns the record batch that comes next, owned by the caller, or nil if arrow-go's reader has to read the next message.
func (m *messages) flat(read func(ipcmessage.Batch, *memory.Buffer) arrow.RecordBatch) (rec arrow.RecordBatch) {
	if in, err := m.peek(); err != nil || len(in.DataHeader) == 0 {
		return nil
	}
	in := m.pending
	m.pending = nil
	m.checked, rec, m.err = m.message(in, read)
	return rec
}

// ticket returns the ticket that comes next, or nil if something else does. app_metadata before it goes to its function.
func (m *messages) ticket() (share.Ticket, error) {
	for m.tickets != nil {
		in, err := m.peek()
		if err != nil {
			return nil, err
		}
		if len(in.DataHeader) > 0 {
			return nil, nil
		}
		m.pending = nil
		var ticket share.Ticket
		if ticket, m.err = m.withoutHeader(in); ticket != nil {
			return ticket, nil
		}
	}
	return nil, nil
}

// withoutHeader returns the ticket that a message without a header carries, or passes its app_metadata to the function. Such
// a message has no body.
func (m *messages) withoutHeader(in *flightdata.Incoming) (share.Ticket, error) {
	if n := in.BodySize(); n > 0 {
		return nil, invalid("FlightData.data_header", "absent, beside a body of %d bytes", n)
	}
	if t := m.tickets.Find(in); t != nil || m.metadata == nil || len(in.AppMetadata) == 0 {
		return t, nil
	}
	err := guarded("the function of WithMetadataFunc", func() error { return m.metadata(in.AppMetadata) })
	if errors.Is(err, io.EOF) { // which is not the end of the stream
		err = fmt.Errorf("flight: the function of WithMetadataFunc: %v", err)
	}
	return nil, err
}

// message checks a received message, and takes its body. It returns the record batch that flat, which may be nil, has read,
// or else a message for arrow-go's reader.
func (m *messages) message(in *flightdata.Incoming, flat func(ipcmessage.Batch, *memory.Buffer) arrow.RecordBatch) (msg *ipc.Message, rec arrow.RecordBatch, err error) {
	defer func() { // arrow-go may panic when it reads metadata
		if v := recover(); v != nil {
			err = invalid("FlightData.data_header", "%v", v)
		}
	}()
	b, owner, err := in.TakeBody(m.copies)
	if err != nil {
		return nil, nil, err
	}
	taken := false
	defer func() {
		if !taken && owner != nil {
			owner.Free(b) // mutant: deleted
		}
	}()
	message, err := m.check.Check(in.DataHeader, b)
	// mutant: if err != nil && b == nil {
	if err != nil {
		return nil, nil, malformed(err)
	}
	m.appMetadata, m.bodySize = in.AppMetadata, len(b)
	if flat != nil && message.Kind == ipcmessage.RecordBatch {
		body := bufferOf(b, owner)
		if rec := flat(message.Batch, body); rec != nil {
			taken = true
			body.Release()
			return nil, rec, nil
		}
	}
	taken = true
	msg, err = m.forArrowGo(message, in.DataHeader, m.mem.Adopt(b, owner))
	return msg, nil, err
}

// bufferOf returns a buffer of memory of an allocator, or of the Go heap.
func bufferOf(b []byte, owner memory.Allocator) *memory.Buffer {
	if owner == nil {
		return memory.NewBufferBytes(b)
	}
	return memory.NewBufferWithAllocator(b, owner)
}

// forArrowGo returns a checked message as arrow-go's reader takes it, whose body it takes.
func (m *messages) forArrowGo(message ipcmessage.Message, metadata []byte, body *memory.Buffer) (*ipc.Message, error) {
	defer func() { body.Release() }()
	// If arrow-go fails within a batch, it does not release the dictionaries that it has used. They are memory of the Go
	// heap, which the garbage collector frees; those with deltas are made while a batch is read.
	dictionary := message.Kind == ipcmessage.DictionaryBatch
	// mutant: m.mem.OnHeap = false
	m.mem.OnHeap = dictionary || m.check.Deltas()
	if dictionary {
		onHeap := memory.NewBufferBytes(flightdata.HeapMemory.Allocate(body.Len()))
		copy(onHeap.Bytes(), body.Bytes())
		if err := m.dictionary(message, metadata, body); err != nil {
			return nil, err
		}
		body.Release()
		body = onHeap
	}
	return ipc.NewMessage(memory.NewBufferBytes(metadata), body), nil
}

func (m *messages) drop() {
	if m.current != nil {
		m.current.Release()
		m.current = nil
	}
}

// Retain adds a reference.
func (m *messages) Retain() { m.refs.Add(1) }

// Release drops a reference, and with the last one the messages.
func (m *messages) Release() {
	if m.refs.Add(-1) > 0 {
		return
	}
	m.drop()
	m.current, m.checked = m.checked, nil
	m.drop()
	m.in.Drop() // mutant: deleted
	m.pending = nil
}

// descriptor receives the first message, which has the descriptor.
func (m *messages) descriptor() (*arrowflight.FlightDescriptor, error) {
	in, err := m.peek()
	if err != nil {
		return nil, err
	}
	return in.FlightDescriptor, nil
}

// cause returns the error that ended the messages, or else err, which arrow-go has found itself, or nil.
func (m *messages) cause(err error) error {
	switch {
	case m.err != nil && m.err != io.EOF:
		return m.err
	case err == nil:
		return nil
	}
	return unread(err)
}
