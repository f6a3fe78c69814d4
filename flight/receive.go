package flight

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/share"
)

// Receive reads the batches of a stream, and returns the descriptor of its first message, or nil. It waits for the schema,
// and until the end of the stream's context, as Next of the reader does. Batches are received ahead ([WithPrefetch]) once
// the first one is asked for.
//
// The caller owns the reader; batches outlive it. Batches that are not copied to a device are memory of the allocator, which
// is freed with the last of their columns. Releasing the reader before the end does not wait, and does not end the stream:
// a goroutine may wait for its next message until the method of the server returns, or the client's context ends. Nothing
// else may read the stream.
func Receive(stream Stream, opts ...ReceiveOption) (*cdevice.RecordReader, *arrowflight.FlightDescriptor, error) {
	if err := notNil(stream, "Receive", "stream", "a stream of Arrow Flight"); err != nil {
		return nil, nil, err
	}
	o, err := newOptions("Receive", opts)
	if err != nil {
		return nil, nil, err
	}
	tickets := o.acceptsTickets() && flightticket.Respond(stream, o.target)
	return receive(stream, tickets, o, call{ctx: stream.Context(), cancel: func() {}})
}

// call is the call that a stream belongs to.
type call struct {
	ctx    context.Context
	cancel func()
	cause  func() error           // the underlying error, if any; may be nil
	retry  func() (Stream, error) // reopens the stream without tickets; may be nil
}

// receive implements Receive; the peer may send tickets if tickets is set.
func receive(stream Stream, tickets bool, o *options, c call) (*cdevice.RecordReader, *arrowflight.FlightDescriptor, error) {
	r := &receiver{o: o, call: c, messages: newMessages(c.ctx, stream, tickets, o)}
	descriptor, err := r.start()
	if err != nil {
		err = contextError(c.ctx, err) // before stop, which ends the context of a client
		r.stop()
		return nil, descriptor, r.failure(err)
	}
	reader, err := cdevice.NewRecordReaderFunc(c.ctx, r.schema, o.deviceType(), r.next, r.stop)
	if err != nil {
		r.stop()
		return nil, descriptor, err
	}
	if r.reader = reader; !o.adaptive {
		reader.Prefetch(o.prefetch)
	}
	return reader, descriptor, nil
}

// receiver makes batches of the messages of a stream.
type receiver struct {
	o        *options
	call     call
	messages *messages
	ipc      *ipc.Reader // nil at the end
	schema   *arrow.Schema
	plan     *layout.Plan          // nil: arrow-go reads the batches
	reader   *cdevice.RecordReader // of the batches
	large    sync.Once             // the first large batch
	watched  sync.Once
}

func (r *receiver) start() (*arrowflight.FlightDescriptor, error) {
	descriptor, err := r.messages.descriptor()
	if err != nil {
		return nil, schemaError(err)
	}
	r.messages.Retain() // for the IPC reader
	r.ipc, err = ipc.NewReaderFromMessageReader(r.messages, ipc.WithAllocator(r.messages.mem))
	if err != nil {
		return descriptor, r.messages.cause(schemaError(err))
	}
	r.schema = r.ipc.Schema()
	return descriptor, guarded(typesOfSchema, func() error {
		r.plan = flatPlan(r.schema)
		r.messages.values = r.messages.check.Values(r.schema)
		return nil
	})
}

// schemaError replaces io.EOF of a stream that ended before its schema.
func schemaError(err error) error {
	if errors.Is(err, io.EOF) {
		return &Error{"stream", "no schema", io.ErrUnexpectedEOF}
	}
	return err
}

// next returns the next batch. The end of ctx ends the stream.
func (r *receiver) next(ctx context.Context) (*cdevice.RecordBatch, error) {
	// mutant: r.watched.Do(func() { context.AfterFunc(ctx, func() {}) })
	r.watched.Do(func() { context.AfterFunc(ctx, r.call.cancel) }) // ctx ends with the reader
	b, err := r.batch(ctx)
	if errors.As(err, new(flightticket.OpenError)) && r.call.retry != nil && ctx.Err() == nil {
		if err = r.restart(); err == nil {
			b, err = r.batch(ctx)
		}
	}
	r.call.retry = nil
	if err != nil {
		r.finish()
		return nil, r.failure(contextError(ctx, err))
	}
	return b, nil
}

func (r *receiver) batch(ctx context.Context) (*cdevice.RecordBatch, error) {
	if r.ipc == nil {
		return nil, io.EOF
	}
	ticket, err := r.messages.ticket()
	if err != nil {
		return nil, err
	}
	if ticket != nil {
		return r.open(ctx, ticket)
	}
	rec, err := r.record()
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	r.messages.mem.MessageRead()
	if r.o.adaptive && r.messages.bodySize > smallBatch {
		r.large.Do(func() { r.reader.Prefetch(r.o.prefetch) })
	}
	host, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer host.Release() // mutant: deleted
	if err := r.validate(ctx, host); err != nil {
		return nil, err
	}
	b := host
	if r.o.target == nil {
		b.Retain()
	} else if b, err = host.CopyTo(ctx, r.o.target); err != nil {
		return nil, err
	}
	return withAppMetadata(b, r.messages.appMetadata), nil
}

// open returns the batch of a ticket.
func (r *receiver) open(ctx context.Context, t share.Ticket) (*cdevice.RecordBatch, error) {
	return r.messages.tickets.Open(ctx, t, func(b *cdevice.RecordBatch) error {
		if !b.Schema().Equal(r.schema) { // mutant: never
			return invalid("ticket", "the schema of the batch is not the stream's")
		}
		return r.validate(ctx, b)
	})
}

func (r *receiver) validate(ctx context.Context, b *cdevice.RecordBatch) error {
	if !r.o.validate {
		return nil
	}
	return b.ValidateFull(ctx)
}

// record reads the next record batch, owned by the caller.
func (r *receiver) record() (rec arrow.RecordBatch, err error) {
	defer func() { // the IPC reader does not recover from every panic
		if v := recover(); v != nil {
			err = invalid("RecordBatch", "%v", v)
		}
	}()
	if r.plan != nil {
		if rec := r.messages.flat(r.flat); rec != nil {
			return rec, nil
		}
	}
	if r.ipc.Next() {
		return withOwnDictionaries(r.ipc.RecordBatch()), nil
	}
	if err := r.messages.cause(r.ipc.Err()); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

func (r *receiver) flat(b ipcmessage.Batch, body *memory.Buffer) arrow.RecordBatch {
	return flatRecord(r.plan, r.schema, b, body)
}

// withAppMetadata takes a reference to b, and returns one to b with the app_metadata of its message.
func withAppMetadata(b *cdevice.RecordBatch, appMetadata []byte) *cdevice.RecordBatch {
	if len(appMetadata) == 0 {
		return b
	}
	defer b.Release()
	md := b.Metadata()
	keys, values := slices.Concat(md.Keys(), []string{AppMetadataKey}), slices.Concat(md.Values(), []string{string(appMetadata)})
	return b.WithMetadata(arrow.NewMetadata(keys, values))
}

// restart reopens the stream without tickets.
func (r *receiver) restart() error {
	stream, err := r.call.retry()
	if err != nil {
		return err
	}
	r.call.retry = nil
	schema := r.schema
	r.finish()
	r.messages = newMessages(r.messages.ctx, stream, false, r.o)
	if _, err := r.start(); err != nil {
		return err
	}
	if !r.schema.Equal(schema) {
		return invalid("schema", "the server answers the same ticket with another one")
	}
	return nil
}

// failure returns the error of the stream for the caller: the cause, if any.
func (r *receiver) failure(err error) error {
	if err == io.EOF {
		return err
	}
	if r.call.cause != nil {
		if cause := r.call.cause(); cause != nil {
			err = cause
		}
	}
	return withStatus(err)
}

// finish drops everything that the stream holds. Delivered batches keep their memory.
func (r *receiver) finish() {
	if r.ipc != nil {
		r.ipc.Release()
		r.ipc = nil
	}
	if r.messages.refs.Load() > 0 {
		r.messages.Release()
	}
	r.messages.mem.FreeUnread() // mutant: deleted
}

// stop ends the stream when no batch is needed any more.
func (r *receiver) stop() {
	r.finish()
	r.call.cancel() // mutant: deleted
}
