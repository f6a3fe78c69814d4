package cdevice

import (
	"context"
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// defaultQueue is the queue size of an [ImportAsync] that is given 0. The largest, items.MaxAhead, keeps
// the sum of all requests far from the limit of an int64.
const defaultQueue = 4

// AsyncStream is an asynchronous stream: its producer pushes batches on threads of its own. Its
// methods may be called from any goroutine. [ImportAsync] makes one.
type AsyncStream struct {
	c *consumer

	mu     sync.Mutex
	reader *RecordReader // from the first Reader on
	ended  bool          // by Close, before there was a reader
	over   chan struct{} // closed when nothing is left of a stream that ended so
}

// ImportAsync fills *handler with the callbacks of a new stream. The caller then passes the handler
// to a producer, and [AsyncStream.Reader] waits for the producer's schema:
//
//	stream, err := cdevice.ImportAsync(ctx, handler, 8)
//	if err != nil {
//		return err
//	}
//	if err := start(handler); err != nil { // a producer that does not take the handler
//		cdevice.ReleaseStruct(handler)
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
// queueSize is the number of batches that are requested or ready ahead of the program that reads the
// stream, from 1 to 1,048,576; 0 stands for 4. Use at most 5 with a producer of arrow-go's cdata (v18.8).
// Its request blocks while five requests wait to be received, and when the producer reports its end, such
// a call ends the process with a send on a closed channel.
//
// The producer may call the handler's callbacks on any thread until it has released the handler.
// They store their arguments and do not block, with two exceptions: the last callback before
// release waits up to one second, and release waits without a limit, for a running call of the
// producer's request or cancel. *handler is overwritten, and must not move before its release.
//
// The producer's callbacks are called as follows:
//
//   - request is called inside on_schema, for as many batches as queueSize says, and afterwards for
//     one more after each batch that the reader takes: slow reading holds the producer back.
//   - extract_data of a task is called exactly once, by the goroutine that reads the batch, or with
//     NULL if the batch is dropped. The producer of arrow-go's cdata (v18.8) crashes then; package cdata of this module
//     extracts the batch all the same.
//   - cancel is called at most once, if the stream ends on this side: by the last Release of the
//     reader, Close, the end of ctx, or a batch that is malformed or could not be extracted.
//   - request and cancel are called by one goroutine at a time, never inside on_error and release,
//     and not after the producer has reported the end or an error.
//
// A producer that does not return from request or cancel blocks neither the reader nor Close.
//
// Each batch is imported as by [ImportRecordBatch], with the same options, and must be on the type
// of device that the producer declares. The stream ends with the producer's end or, after the
// batches that are ready, with an error: a [ProducerError] that the producer reported,
// io.ErrUnexpectedEOF if it released the handler without reporting the end, or a [FieldError] about
// a malformed struct.
//
// The end of ctx ends the stream: the reader returns an error that wraps ctx's, the batches that
// are ready are dropped, and the producer's cancel is called. It ends a wait for a batch at once,
// but does not interrupt a running call of extract_data. It does not affect a stream whose last
// batch was taken and whose producer has reported the end.
//
// ImportAsync returns an error, and does not fill the handler, if ctx or handler is nil, or
// queueSize or an option is invalid.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowasyncdevicestreamhandler-structure
func ImportAsync(ctx context.Context, handler *CArrowAsyncDeviceStreamHandler, queueSize int, opts ...ImportOption) (*AsyncStream, error) {
	if err := fielderr.CheckContext(fielderr.OpImport, ctx); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowAsyncDeviceStreamHandler", "NULL", "a struct to fill")
	}
	if queueSize == 0 {
		queueSize = defaultQueue
	}
	if queueSize < 0 || queueSize > items.MaxAhead {
		return nil, fielderr.Invalid(fielderr.OpImport, "queueSize", queueSize, fmt.Sprintf("0 to %d", items.MaxAhead))
	}
	var o importOptions
	apply(fielderr.OpImport, &o, &o.Err, opts)
	if o.Err != nil {
		return nil, o.Err
	}
	return &AsyncStream{c: newConsumer(ctx, handler, queueSize, &o), over: make(chan struct{})}, nil
}

// Reader waits until the producer has given the schema, and returns the reader of the batches, owned
// by the caller. [RecordReader.Metadata] of the reader is the metadata that came with the schema. If
// the stream ends without a schema, Reader returns its error. The end of ctx ends the wait, but not
// the stream.
//
// The last Release of the reader cancels the stream if it has not ended, and ends a wait for the next
// batch on another goroutine. It does not wait for the producer. [RecordReader.Close] also waits until
// the producer has released the handler.
//
// There is one reader: another call returns it with one more reference and, after its last Release,
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

// Close ends the stream and returns when the producer has released the handler. It calls the
// producer's cancel, drops the batches that are ready, and ends the reader as [RecordReader.Close]
// does. Batches that were taken stay valid. Close does not drop a reference to the reader.
//
// The end of ctx ends the wait with an error that wraps ctx's, but not the closing: another Close
// waits for the rest. A caller that frees the handler's memory afterwards needs a context other than
// the stream's. Close may be called more than once, and while another goroutine reads.
//
// The producer must release the handler that it was given, even while one of its threads does not
// return from request or cancel. Release waits for such a call. If the call in turn waits for release,
// for example because the producer holds in release the lock that its request takes, both wait for
// ever: Close then returns one second after release was called, the producer's threads stay blocked,
// and the stream stays counted in [ReadStats].
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

// end returns the reader, which ends the stream. If there is none, end ends the stream itself.
func (a *AsyncStream) end() *RecordReader {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reader == nil && !a.ended {
		a.ended = true
		a.c.Close(func() { close(a.over) })
	}
	return a.reader
}
