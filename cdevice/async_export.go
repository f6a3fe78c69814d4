package cdevice

import (
	"context"
	"sync"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// ExportAsync gives the batches that are left in r to a handler. Each is exported, as by
// [ExportRecordBatch], when the consumer extracts it. The metadata of [RecordBatch.WithMetadata]
// goes with each batch, that of [RecordReader.WithMetadata] with the stream. ExportAsync
// does not copy: call it with the result of [RecordReader.CopyTo] for a stream of copies.
//
// It returns at once. A goroutine of the stream calls the handler's callbacks, one after the other,
// and sleeps while no batch is requested:
//
//   - on_schema once, and first, unless r failed before its schema was known.
//   - on_next_task for each batch, never more often than the consumer has requested batches. One
//     batch is taken from r before it is requested, so that the end is reported as soon as it is
//     known. The ArrowAsyncTask struct is valid only during on_next_task: the consumer copies it. The
//     copy may be extracted on any thread, at any time, even after release, unless on_next_task
//     returned an error for it.
//   - on_next_task with NULL at the end of r, or on_error: for an error of r, a panic in the code
//     that makes the batches, a request for fewer than one batch, a task that could not be
//     extracted for lack of memory, or the end of ctx (ECANCELED or ETIMEDOUT). on_error may then
//     be the first callback.
//   - release last: after the end or on_error, after any callback that has returned an error, and
//     after cancel. It does not wait until the tasks are extracted.
//
// The consumer may call request and cancel on any thread, even inside its callbacks. Neither blocks
// nor calls the handler. After cancel, the handler still gets a batch that it had requested and
// that was already taken from r; then it is released, without on_error, and request does nothing.
// Once ctx is done, no more batches are delivered. The producer struct stays readable for the life
// of the process: calls of request and cancel after release do nothing.
//
// It takes ownership of *handler, even if it returns an error: if ctx, r or handler is nil, r is
// released, or the handler is released or lacks a callback. Before it returns, it then calls on_error with
// the error, unless a callback is lacking, and release. A handler that another ExportAsync was given stays
// that stream's: the second call is an error, and changes nothing.
// *handler must not move before it is released. The stream holds a reference to r. The caller keeps its
// own; each batch goes either to the stream or to a caller that reads r. If r is waiting for a batch when
// the stream ends, the stream drops its reference when that wait ends. The wait ends at once if there
// is no other reference to r and its source can be interrupted, as that of an asynchronous stream
// or of a copy can.
//
// The result may be ignored. [AsyncExport.Wait] returns how the stream ended.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#async-device-stream-interface
func ExportAsync(ctx context.Context, r *RecordReader, handler *CArrowAsyncDeviceStreamHandler) (*AsyncExport, error) {
	if err := checkHandler(handler); err != nil {
		ReleaseStruct(handler)
		return nil, err
	}
	p := &producer{
		ctx: ctx, reader: r, handler: handler, refs: 1,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), given: new(given),
	}
	if !p.claim() {
		return nil, fielderr.Invalid(fielderr.OpExport, "ArrowAsyncDeviceStreamHandler", "in use", "a handler that no other stream has")
	}
	if err := checkHandler(handler); err != nil { // another stream may have ended meanwhile
		exporting.CompareAndDelete(handler, p)
		return nil, err
	}
	if err := checkExportAsync(ctx, r); err != nil {
		p.finish(err)
		if p.c != nil {
			bridge.EndProducer(p.c)
		}
		return nil, err
	}
	p.streamMetadata = r.Metadata()
	asyncProducers.Add(1)
	p.origin = live.Add("exported ArrowAsyncProducer")
	items.Background(p.run)
	return &AsyncExport{p}, nil
}

// exporting has the producers of the handlers that streams of ExportAsync have not released.
var exporting sync.Map

// claim makes the handler this stream's, and reports whether it is no other stream's.
func (p *producer) claim() bool {
	for {
		other, found := exporting.LoadOrStore(p.handler, p)
		if !found {
			return true
		}
		// Once a handler is released, its memory may be another handler, which has no producer yet.
		o := other.(*producer)
		if !o.releasing.Load() || p.handler.Producer == uintptr(unsafe.Pointer(o.c)) {
			return false
		}
		if exporting.CompareAndSwap(p.handler, o, p) {
			return true
		}
	}
}

// checkExportAsync takes a reference to r, unless it returns an error.
func checkExportAsync(ctx context.Context, r *RecordReader) error {
	if err := fielderr.CheckContext(fielderr.OpExport, ctx); err != nil {
		return err
	}
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordReader", "a reader")
	}
	if !r.r.Hold() {
		return exportReleased("RecordReader")
	}
	return nil
}

// AsyncExport is a stream of [ExportAsync].
type AsyncExport struct{ p *producer }

// Wait returns when the handler was released, and returns why the stream ended: nil if the consumer was
// given all batches and the end, the error that on_error was called with, an error that wraps
// context.Canceled if the consumer called cancel, or one that wraps the code, as a syscall.Errno, that a
// callback of the consumer returned. Batches may not be extracted yet.
//
// The error of a panic in the code that makes the batches has a method Stack() []byte, which returns the
// stack. The consumer is told the text only.
//
// The end of ctx ends the wait with an error that wraps ctx's, but not the stream.
func (e *AsyncExport) Wait(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpWait, ctx); err != nil {
		return err
	}
	if items.IsClosed(e.p.ended) {
		return e.p.why // even if ctx is done
	}
	select {
	case <-e.p.ended:
		return e.p.why
	case <-ctx.Done():
		return fielderr.ContextError(ctx, fielderr.OpWait)
	}
}

func checkHandler(h *CArrowAsyncDeviceStreamHandler) error {
	const name = "ArrowAsyncDeviceStreamHandler"
	switch {
	case h == nil:
		return fielderr.Invalid(fielderr.OpExport, name, "NULL", "a handler of a consumer")
	case h.Release == 0:
		return fielderr.NoRelease(fielderr.OpExport, name+".release")
	case h.OnSchema == 0:
		return fielderr.Invalid(fielderr.OpExport, name+".on_schema", "NULL", "a callback")
	case h.OnNextTask == 0:
		return fielderr.Invalid(fielderr.OpExport, name+".on_next_task", "NULL", "a callback")
	case h.OnError == 0:
		return fielderr.Invalid(fielderr.OpExport, name+".on_error", "NULL", "a callback")
	}
	return nil
}
