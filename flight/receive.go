package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
)

// AppMetadataKey is the key of a batch's app_metadata in RecordBatch.Metadata.
const AppMetadataKey = "arrow.flight.app_metadata"

// Stream is a stream of FlightData messages: those of arrowflight's DoGet, DoPut and DoExchange, of
// clients and of servers. It is borrowed.
type Stream interface {
	Context() context.Context
	SendMsg(m any) error
	RecvMsg(m any) error
}

// Receive reads the batches of a stream, and returns the descriptor of its first message, or nil. It
// waits for the schema. Batches are received ahead ([WithPrefetch]) once the first one is asked for.
//
// The stream's context ends every wait. A Release before the end does not wait, and does not end the
// stream: until the method of the server returns, or the client's context ends, a goroutine may be
// waiting for its next message. The stream must not be read from elsewhere.
//
// The reader is owned by the caller; batches outlive it. Memory of the CPU of batches that are not
// copied to a device is of the allocator, and is freed with the last of the batch's columns.
func Receive(stream Stream, opts ...Option) (*cdevice.RecordReader, *arrowflight.FlightDescriptor, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, nil, err
	}
	if argument.IsNil(stream) {
		return nil, nil, absent("stream", "a stream of Arrow Flight")
	}
	return receive(stream, o, stream.Context(), o.answering(stream), func() {}, nil, nil)
}

// receive is Receive with a function that ends the stream, for good or while it is waiting, and one
// that returns the error behind the stream's, if there is one, and one that asks for the stream again
// without tickets, if that can be. tickets says whether there may be tickets.
func receive(stream Stream, o *options, ctx context.Context, tickets bool, end func(), behind func() error, again func() (Stream, error)) (*cdevice.RecordReader, *arrowflight.FlightDescriptor, error) {
	in := &receiver{o: o, end: end, behind: behind, again: again}
	in.messages = newMessages(ctx, stream, o)
	if tickets {
		in.messages.mark = ticketMark(process())
	}
	descriptor, err := in.start()
	if err != nil {
		in.finish()
		end()
		return nil, descriptor, in.failure(err)
	}
	t := device.CPU
	if o.dev != nil {
		t = o.dev.ID().Type
	}
	r, err := cdevice.NewRecordReaderFunc(ctx, in.schema, t, in.next, in.stop)
	if err != nil {
		in.finish()
		end()
		return nil, descriptor, err
	}
	return r.Prefetch(o.prefetch), descriptor, nil
}

// receiver makes batches of the messages of a stream.
type receiver struct {
	o        *options
	end      func()
	behind   func() error
	again    func() (Stream, error) // nil: no more
	messages *messages
	ipc      *ipc.Reader // nil at the end
	schema   *arrow.Schema
	watched  sync.Once
}

func (r *receiver) start() (*arrowflight.FlightDescriptor, error) {
	descriptor, err := r.messages.begin()
	if err != nil {
		return nil, schemaError(err)
	}
	r.messages.Retain() // the IPC reader's
	r.ipc, err = ipc.NewReaderFromMessageReader(r.messages, ipc.WithAllocator(r.messages.mem))
	if err != nil {
		return descriptor, r.messages.cause(schemaError(err))
	}
	r.schema = r.ipc.Schema()
	r.messages.values = r.messages.check.Values(r.schema)
	return descriptor, nil
}

// schemaError makes an error of the end of a stream that had no schema.
func schemaError(err error) error {
	if errors.Is(err, io.EOF) {
		return &Error{"stream", "no schema", io.ErrUnexpectedEOF}
	}
	return err
}

// next returns the next batch. The end of ctx ends the stream.
func (r *receiver) next(ctx context.Context) (*cdevice.RecordBatch, error) {
	// mutant: r.watched.Do(func() { context.AfterFunc(ctx, func() {}) })
	r.watched.Do(func() { context.AfterFunc(ctx, r.end) }) // ctx ends with the reader
	b, err := r.batch(ctx)
	if failed := (openError{}); errors.As(err, &failed) && r.again != nil && ctx.Err() == nil {
		if err = r.restart(); err == nil {
			b, err = r.batch(ctx)
		}
	}
	r.again = nil
	if err != nil {
		r.finish()
		return nil, r.failure(endOf(ctx, err))
	}
	return b, nil
}

// endOf is the error of ctx, if err comes from a call that was cancelled because of that, and whose tickets ended with
// it: ctx may have ended for another reason, its deadline, which the server may see before ctx does.
func endOf(ctx context.Context, err error) error {
	if status.Code(withStatus(err)) != codes.Canceled && !errors.As(err, new(openError)) {
		return err
	}
	ended := ctx.Err()
	if deadline, ok := ctx.Deadline(); ended == nil && ok && !time.Now().Before(deadline) {
		ended = context.DeadlineExceeded
	}
	if ended == nil {
		return err
	}
	return fmt.Errorf("flight: %w", ended)
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
	r.messages.mem.passed() // from here on its memory is counted as it must be
	host, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer host.Release() // mutant: deleted
	if r.o.validate {
		if err := host.ValidateFull(ctx); err != nil {
			return nil, err
		}
	}
	there := host
	if r.o.dev == nil {
		host.Retain()
	} else if there, err = host.CopyTo(ctx, r.o.dev); err != nil {
		return nil, err
	}
	return withMetadata(there, rec, r.messages.appMetadata), nil
}

// record reads the next record batch, owned by the caller.
func (r *receiver) record() (rec arrow.RecordBatch, err error) {
	if r.ipc == nil {
		return nil, io.EOF
	}
	defer func() { // the IPC reader recovers, but not in every function
		if v := recover(); v != nil {
			err = &Error{"RecordBatch", fmt.Sprint(v), errInvalid}
		}
	}()
	if r.ipc.Next() {
		return withOwnDictionaries(r.ipc.RecordBatch()), nil
	}
	if err := r.messages.cause(r.ipc.Err()); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// named makes an Error of an error of arrow-go's IPC reader that wraps none that a caller could know.
func named(err error) error {
	var e *Error
	if errors.As(err, &e) || errors.Is(err, arrow.ErrInvalid) || errors.Is(err, arrow.ErrNotImplemented) || withStatusOf(err) {
		return err
	}
	return &Error{"FlightData", "not read: " + err.Error(), errInvalid}
}

// withMetadata takes a reference to b, and returns one to b with the metadata of its message.
func withMetadata(b *cdevice.RecordBatch, rec arrow.RecordBatch, appMetadata []byte) *cdevice.RecordBatch {
	var md arrow.Metadata
	if with, ok := rec.(arrow.RecordBatchWithMetadata); ok {
		md = with.Metadata()
	}
	if len(appMetadata) == 0 && md.Len() == 0 {
		return b
	}
	keys, values := append([]string{}, md.Keys()...), append([]string{}, md.Values()...)
	if len(appMetadata) > 0 {
		keys, values = append(keys, AppMetadataKey), append(values, string(appMetadata))
	}
	defer b.Release()
	return b.WithMetadata(arrow.NewMetadata(keys, values))
}

// failure is the error of the stream for the caller: the one behind it, if there is one.
func (r *receiver) failure(err error) error {
	if err == io.EOF {
		return err
	}
	if r.behind != nil {
		if cause := r.behind(); cause != nil {
			err = cause
		}
	}
	return withStatus(err)
}

// finish drops everything that the stream holds. Batches that were delivered keep their memory.
func (r *receiver) finish() {
	if r.ipc != nil {
		r.ipc.Release()
		r.ipc = nil
	}
	if r.messages.refs.Load() > 0 {
		r.messages.Release()
	}
	r.messages.mem.failed() // mutant: deleted
}

// stop ends the stream: no batch is needed any more.
func (r *receiver) stop() {
	r.finish()
	r.end() // mutant: deleted
}
