package cdevice

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// AsyncDeviceStreamHandlerFromPtr returns the struct ArrowAsyncDeviceStreamHandler at an address. It
// borrows the struct.
func AsyncDeviceStreamHandlerFromPtr(ptr uintptr) *CArrowAsyncDeviceStreamHandler {
	return abi.At[CArrowAsyncDeviceStreamHandler](ptr)
}

// ReleaseCArrowAsyncDeviceStreamHandler calls the release callback of a handler that was
// not handed to a producer. A nil or released handler is left alone.
func ReleaseCArrowAsyncDeviceStreamHandler(handler *CArrowAsyncDeviceStreamHandler) {
	if handler != nil && handler.Release != 0 {
		bridge.CallHandlerRelease(handlerMirror(handler))
	}
}

// defaultQueue is how many batches the producer may be ahead where [WithQueueSize] is not given.
// maxQueue keeps the sum of all requests far from the limit of an int64.
const (
	defaultQueue = 4
	maxQueue     = 1 << 20
)

// WithQueueSize sets how many batches the producer of an asynchronous stream may be ahead of the
// program that reads it: that many are always requested or ready. It is 1 to 1,048,576, and 4
// without this option. Producers that end before they release the handler, as arrow-go's cdata does,
// are safe with 1 only.
//
// It is an option of [ImportAsync]; other functions ignore it.
func WithQueueSize(n int) ImportOption {
	return func(o *importOptions) {
		if o.err == nil && (n < 1 || n > maxQueue) {
			o.err = fielderr.Invalid(fielderr.OpImport, "WithQueueSize", n, fmt.Sprintf("1 to %d", maxQueue))
		}
		o.queueSize = n
	}
}

// AsyncStream is an asynchronous stream whose batches a producer announces on threads of its
// own. Its methods may be called from any goroutine. [ImportAsync] makes one.
type AsyncStream struct {
	c *consumer

	mu     sync.Mutex
	reader *RecordReader // from the first Reader on
	ended  bool          // by Close, before there was a reader
	over   chan struct{} // closed when nothing is left of a stream that ended so
}

// ImportAsync fills *handler with the callbacks of a new stream, for a producer that the caller
// then hands it to. Reader waits for that producer and returns the stream's reader:
//
//	stream, err := cdevice.ImportAsync(ctx, handler)
//	if err != nil {
//		return err
//	}
//	if err := start(handler); err != nil { // a producer that does not take the handler
//		cdevice.ReleaseCArrowAsyncDeviceStreamHandler(handler)
//		return err
//	}
//	defer stream.Close(ctx)
//	r, err := stream.Reader(ctx)
//	if err != nil {
//		return err
//	}
//	defer r.Release()
//	for batch, err := range r.All() { ... }
//
// The callbacks of the handler may be called on any thread, from the moment when the producer gets
// the handler until it releases it. They do not block: they store what they are given. Only the last
// one before release and release itself wait for a call of the producer's request or cancel that is
// under way, the former for one second at most. *handler must stay where it is until its release, and
// may hold anything before: it is overwritten.
//
// The producer's callbacks are called as follows:
//
//   - request is called inside on_schema, for as many batches as [WithQueueSize] sets, and afterwards for
//     one more whenever the reader has taken a batch: slow reading holds the producer back.
//   - extract_data of a task is called exactly once, by the goroutine that asks the reader for the
//     batch, or with NULL where the batch is not wanted any more.
//   - cancel is called at most once, if the stream ends on this side: by the last Release of the
//     reader, Close, the end of ctx, or a batch that is malformed.
//   - request and cancel are called by one goroutine at a time, never inside on_error and release, and
//     not after the producer has told the end or an error.
//
// No reader and no Close is held up by a producer that does not return from request or cancel.
//
// Each batch is imported as [ImportRecordBatch] does, with the same options, and must live on the type of device
// that the producer declares. The reader ends with the producer's end; or, after the batches that are
// ready, with its error, a [ProducerError]; with io.ErrUnexpectedEOF where it released the handler
// without either; or with a [FieldError] about what it gave.
//
// The end of ctx ends the stream for good: the reader gives no batch from then on but an error that
// wraps ctx's, the batches that are ready are dropped, and the producer is told to cancel. It ends the
// wait for a batch at once, but not a call of extract_data that is under way. A stream whose last
// batch was taken, and whose producer has told the end, has ended before.
//
// After an error of ImportAsync the handler is not filled: ctx or handler is nil, or an option is wrong.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowasyncdevicestreamhandler-structure
func ImportAsync(ctx context.Context, handler *CArrowAsyncDeviceStreamHandler, opts ...ImportOption) (*AsyncStream, error) {
	if err := fielderr.CheckContext(fielderr.OpImport, ctx); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowAsyncDeviceStreamHandler", "NULL", "a struct to fill")
	}
	o := importOptions{queueSize: defaultQueue}
	apply(&o, opts)
	if o.err != nil {
		return nil, o.err
	}
	return &AsyncStream{c: newConsumer(ctx, handler, o.queueSize, opts), over: make(chan struct{})}, nil
}

// Reader waits until the producer has given the schema, and returns the reader of the batches, owned
// by the caller. Its Metadata is what the producer said of the whole stream. Where the stream ends
// without a schema, the error is the stream's; the end of ctx ends the wait, and not the stream.
//
// The last Release of the reader cancels the stream if it has not ended, ends a wait for the next batch
// on another goroutine, and does not wait for the producer; [RecordReader.Close] cancels it and waits until the producer has released the handler.
//
// There is one reader: another call returns it with one more reference, and after its last Release
// an error that wraps [ErrReleased].
func (a *AsyncStream) Reader(ctx context.Context) (*RecordReader, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return nil, err
	}
	select {
	case <-a.c.known: // even if ctx is done
	default:
		select {
		case <-a.c.known:
		case <-ctx.Done():
			return nil, fielderr.ContextError(ctx, fielderr.OpRead)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended:
		return nil, fielderr.Released("AsyncStream")
	case a.reader == nil:
		return a.open()
	case !a.reader.r.Hold():
		return nil, fielderr.Released("RecordReader")
	}
	return a.reader, nil
}

// open makes the reader. mu is held.
func (a *AsyncStream) open() (*RecordReader, error) {
	begun, err := a.c.opened()
	if err != nil {
		return nil, err
	}
	a.reader = newRecordReader(begun.schema, begun.deviceType, a.c)
	a.reader.metadata = begun.metadata
	return a.reader, nil
}

// Close ends the stream and returns when the producer has released the handler: the producer is told
// to cancel, batches that are ready are dropped, and the reader ends as after its
// [RecordReader.Close]. Batches that were taken outlive it. It drops no reference to the reader.
//
// The end of ctx ends the wait with an error that wraps ctx's, and not the closing: another Close
// waits for the rest. A caller that frees the memory of the handler afterwards gives a context that does
// not end with the stream's. Close may be called more than once, and while another goroutine reads.
//
// A producer that was given the handler must release it, and one that does not return from request or
// cancel may still do so. If it calls release, which waits for that call, and the call waits for
// release, neither returns: a producer does that which holds, in release, the lock that its request
// takes. Close then returns a second after release was called; the threads of the producer stay where
// they are, and so does the stream in [ReadStats].
func (a *AsyncStream) Close(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpClose, ctx); err != nil {
		return err
	}
	if r := a.end(); r != nil {
		return r.Close(ctx)
	}
	if items.IsClosed(a.over) {
		return nil // even if ctx is done
	}
	select {
	case <-a.over:
		return nil
	case <-ctx.Done():
		return fielderr.ContextError(ctx, fielderr.OpClose)
	}
}

// end returns the reader, whose end is the stream's. Where there is none, it ends the stream.
func (a *AsyncStream) end() *RecordReader {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reader == nil && !a.ended {
		a.ended = true
		a.c.Close(func() { close(a.over) })
	}
	return a.reader
}

var asyncStreams atomic.Int64
