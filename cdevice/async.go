package cdevice

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
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

// AsyncOptions says how an [AsyncStream] takes its batches.
type AsyncOptions struct {
	// QueueSize is how many batches the producer may be ahead of the loop that takes them.
	// Zero is 4; more than a million is a million. Producers that end before they are released, as arrow-go's cdata does,
	// are safe with 1 only.
	QueueSize int
	// Import are the options that batches are imported with.
	Import []ImportOption
}

// AsyncStream is the consumer of an asynchronous stream: record batches that a producer
// announces on threads of its own, and that are taken with All. Its methods may be
// called from any goroutine.
//
//	s := cdevice.NewAsyncStream(ctx, handler, cdevice.AsyncOptions{})
//	defer s.Close()
//	if err := start(handler); err != nil { // hand it to a producer
//		cdevice.ReleaseCArrowAsyncDeviceStreamHandler(handler) // which did not take it: Close would wait for it
//		return err
//	}
//	for batch, err := range s.All() { ... }
//
// The producer is asked for a batch whenever one is taken, so that QueueSize batches are
// always asked for or ready: slow use is back-pressure. A batch is made by the goroutine
// that takes it, not on the producer's threads.
type AsyncStream struct{ c *consumer }

// NewAsyncStream fills *handler with the callbacks of a new stream. They may be called, on
// any thread, as soon as the handler is handed to a producer, and until the producer
// releases it; *handler must stay where it is for as long. It may hold anything before.
//
// The end of ctx ends the stream for good: All yields no batch from then on, what is ready is
// dropped, and the producer is told to cancel. A stream whose last batch was taken, and whose
// producer has told its end, has ended before. The stream is owned by the caller, who calls Close. A handler that is never
// handed over is released with [ReleaseCArrowAsyncDeviceStreamHandler], before Close.
//
// With a nil ctx the stream has ended with an error, which All and Schema return; the handler is filled
// all the same. A nil handler panics: there is nothing to hand to a producer.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowasyncdevicestreamhandler-structure
func NewAsyncStream(ctx context.Context, handler *CArrowAsyncDeviceStreamHandler, opts AsyncOptions) *AsyncStream {
	if handler == nil {
		panic(invalid(opImport, "ArrowAsyncDeviceStreamHandler", "NULL", "a struct to fill"))
	}
	if opts.QueueSize <= 0 {
		opts.QueueSize = 4
	}
	opts.QueueSize = min(opts.QueueSize, maxQueue)
	if err := checkContext(opRead, ctx); err != nil {
		s := &AsyncStream{newConsumer(context.Background(), handler, opts)}
		s.c.stop(err)
		return s
	}
	return &AsyncStream{newConsumer(ctx, handler, opts)}
}

// Schema returns the schema of all batches. It waits until the producer has given it, or
// the stream has ended without, or ctx is done.
func (s *AsyncStream) Schema(ctx context.Context) (*arrow.Schema, error) {
	if err := checkContext(opRead, ctx); err != nil {
		return nil, err
	}
	select {
	case <-s.c.known: // even if ctx is done
	default:
		select {
		case <-s.c.known:
		case <-ctx.Done():
			return nil, fmt.Errorf("cdevice: read: %w", ctx.Err())
		}
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch {
	case s.c.schema != nil:
		return s.c.schema, nil
	case s.c.err != nil:
		return nil, s.c.err
	}
	return nil, readReleased("AsyncStream")
}

// Metadata is what the producer said of the whole stream. It is known when Schema has
// returned, and empty before.
func (s *AsyncStream) Metadata() arrow.Metadata {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.metadata
}

// DeviceType is the type of the device that all batches live on. It is known when Schema
// has returned, and zero before.
func (s *AsyncStream) DeviceType() device.Type {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.deviceType
}

// All yields the batches as they come, then an error if the stream ended with one: an
// [AsyncError] of the producer's, a [FieldError] about what it gave, or ctx's. The batch
// borrows from the stream until the next iteration; Retain to keep it. Its Metadata is
// what the producer said beside it.
//
// The loop may be left and another one begun: it goes on where the first stopped. The
// producer waits meanwhile, it is not cancelled. After Close, All yields nothing.
//
// The end of the stream's context ends a wait for the next batch. A call of the producer's extract_data
// that is under way is not interrupted: All returns after it.
func (s *AsyncStream) All() iter.Seq2[*RecordBatch, error] { return s.c.all }

// Close ends the stream: the producer is told to cancel, what is ready is dropped, and
// Close returns when the producer has released the handler. Batches outlive it. It may be
// called more than once, and while another goroutine takes a batch.
//
// All and Close are not held up by a producer that does not return from its request or
// cancel. One that never does, although it has called release, and waits there for that call, as a
// producer does that holds the lock which request takes, has stopped for good: Close returns a second after
// release was called, the threads of the producer stay where they are, and so does the stream in [ReadStats].
func (s *AsyncStream) Close() { s.c.close() }

// maxQueue keeps the sum of all requests far from what an int64 holds.
const maxQueue = 1 << 20

var asyncStreams atomic.Int64
