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

	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
)

// messages gives the messages of a stream to arrow-go's IPC reader, with bodies that it slices and
// counts. One goroutine at a time reads them.
type messages struct {
	refs     atomic.Int64
	ctx      context.Context // ends the messages
	stream   Stream
	mem      *tracker
	check    *ipcmessage.Checker
	values   map[int64]*arrow.Schema // of dictionaries, once the schema was read
	copies   bool                    // bodies of other codecs are copied into memory of mem
	max      int
	metadata func([]byte) error
	mark     string // of tickets, which may come in place of batches; empty: none do

	first       *incoming // received, and not read
	current     *ipc.Message
	appMetadata []byte // of the message that was read last
	err         error  // that ended the messages, as it was before arrow-go made text of it
}

var _ ipc.MessageReader = (*messages)(nil)

func newMessages(ctx context.Context, stream Stream, o *options) *messages {
	m := &messages{
		ctx: ctx, stream: stream, mem: newTracker(o.mem), check: ipcmessage.NewChecker(o.maxReceive()),
		copies: o.dev != nil, max: o.maxReceive(), metadata: o.metadata,
	}
	m.refs.Add(1)
	return m
}

// receive receives a message from the stream. What an error leaves behind, here and below, the end of the stream frees.
func (m *messages) receive() (*incoming, error) {
	if err := m.ctx.Err(); err != nil { // grpc still returns the messages that have arrived
		return nil, fmt.Errorf("flight: %w", err)
	}
	in := &incoming{FlightData: new(arrowflight.FlightData), mem: m.mem}
	if err := m.stream.RecvMsg(in); err != nil {
		return nil, err
	}
	if in.err != nil {
		return nil, in.err
	}
	if n := max(len(in.body), len(in.DataBody)); n > m.max { // mutant: never
		return nil, invalid("FlightData.data_body", fmt.Sprintf("%d bytes, of at most %d (WithMaxMessageSize)", n, m.max))
	}
	return in, nil
}

// begin receives the first message, which has the descriptor.
func (m *messages) begin() (*arrowflight.FlightDescriptor, error) {
	in, err := m.receive()
	if err != nil {
		m.err = err
		return nil, err
	}
	m.first = in
	return in.FlightDescriptor, nil
}

// Message returns the next message, borrowed until the next call. It drops the one before it.
func (m *messages) Message() (*ipc.Message, error) {
	m.drop()
	if m.err != nil {
		return nil, m.err
	}
	msg, err := m.next()
	if err != nil {
		m.err = err
		return nil, err
	}
	m.current = msg
	return msg, nil
}

func (m *messages) next() (*ipc.Message, error) {
	for {
		in := m.first
		m.first = nil
		if in == nil {
			var err error
			if in, err = m.receive(); err != nil {
				return nil, err
			}
		}
		if len(in.DataHeader) > 0 {
			return m.message(in)
		}
		if err := m.withoutHeader(in); err != nil {
			return nil, err
		}
		if m.ticketOf(in) != nil {
			return nil, invalid("FlightData.app_metadata", "a ticket between the messages of a batch")
		}
		if err := m.alone(in.AppMetadata); err != nil {
			return nil, err
		}
	}
}

// withoutHeader checks a message that has no header, and so must not have a body.
func (m *messages) withoutHeader(in *incoming) error {
	if n := max(len(in.body), len(in.DataBody)); n > 0 {
		return invalid("FlightData.data_header", fmt.Sprintf("absent, beside a body of %d bytes", n))
	}
	return nil
}

// alone takes app_metadata that came without a batch.
func (m *messages) alone(appMetadata []byte) error {
	if m.metadata == nil || len(appMetadata) == 0 {
		return nil
	}
	err := guarded("the function of WithMetadataFunc", func() error { return m.metadata(appMetadata) })
	if errors.Is(err, io.EOF) { // which is not the end of the stream
		err = fmt.Errorf("flight: the function of WithMetadataFunc: %v", err)
	}
	return err
}

// message makes a message of arrow-go of a received one, whose body it takes.
func (m *messages) message(in *incoming) (msg *ipc.Message, err error) {
	defer func() { // arrow-go's reading of metadata may panic
		if v := recover(); v != nil {
			err = invalid("FlightData.data_header", fmt.Sprint(v))
		}
	}()
	body := m.body(in)
	defer func() { body.Release() }()
	message, err := m.check.Check(in.DataHeader, body.Bytes())
	// mutant: if err != nil && body == nil {
	if err != nil {
		return nil, refused(err)
	}
	// If arrow-go fails in the middle of a batch, it does not release the dictionaries that it has used. They are memory
	// of the Go heap, which the garbage collector finds; those with deltas are made while a batch is read.
	dictionary := message.Kind == ipcmessage.DictionaryBatch
	// mutant: m.mem.heap = false
	m.mem.heap = dictionary || m.check.Deltas()
	if dictionary {
		onHeap := memory.NewBufferBytes(heapMemory.Allocate(body.Len()))
		copy(onHeap.Bytes(), body.Bytes())
		if err := m.dictionary(message, in.DataHeader, body); err != nil {
			return nil, err
		}
		body.Release()
		body = onHeap
	}
	m.appMetadata = in.AppMetadata
	return ipc.NewMessage(memory.NewBufferBytes(in.DataHeader), body), nil
}

// body returns the body as a buffer that is counted.
func (m *messages) body(in *incoming) *memory.Buffer {
	b := in.body
	in.body = nil
	switch {
	case in.own && b != nil:
	case len(in.DataBody) == 0 || !m.copies:
		return memory.NewBufferBytes(in.DataBody[:len(in.DataBody):len(in.DataBody)])
	default:
		b = m.mem.Allocate(len(in.DataBody))
		copy(b, in.DataBody)
	}
	return memory.NewBufferWithAllocator(b, m.mem)
}

func (m *messages) drop() {
	if m.current != nil {
		m.current.Release()
		m.current = nil
	}
}

func (m *messages) Retain() { m.refs.Add(1) }

func (m *messages) Release() {
	if m.refs.Add(-1) > 0 {
		return
	}
	m.drop()
	m.first = nil
}

// cause is the error that ended the messages, or err, which arrow-go found itself, or nil.
func (m *messages) cause(err error) error {
	if m.err != nil && m.err != io.EOF {
		return m.err
	}
	if err == nil {
		return nil
	}
	return named(err)
}
