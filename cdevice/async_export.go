package cdevice

import (
	"context"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// AsyncExportOption changes what [ExportAsync] gives to a handler. One that is nil does nothing.
type AsyncExportOption func(*asyncExportOptions)

type asyncExportOptions struct {
	metadata arrow.Metadata
}

// WithMetadata gives the handler metadata of the whole stream (how many rows it has, say) instead of
// the reader's [RecordReader.Metadata].
func WithMetadata(md arrow.Metadata) AsyncExportOption {
	return func(o *asyncExportOptions) { o.metadata = md }
}

// ExportAsync gives the batches that are left in r to a handler, each exported as
// [ExportRecordBatch] does when the consumer extracts it. The metadata of [RecordBatch.WithMetadata]
// goes beside each batch, that of r, or of the option [WithMetadata], beside the stream. It copies
// nothing and waits for nothing: [RecordReader.CopyTo] before makes a stream of copies.
//
// It returns at once, and works on a goroutine of its own, which sleeps while the handler has
// not requested more. The handler's callbacks are called on it, one after the other:
//
//   - on_schema once, and first.
//   - on_next_task for each batch, never more often than the consumer has requested batches. One batch
//     is taken from r before it is requested, so that the end is told as soon as it is known. A task may be
//     extracted on any thread, at any time, after release too; a task that on_next_task returned an
//     error for cannot be.
//   - on_next_task with NULL at the end of r, or on_error: for an error of r, a panic in the code that
//     makes the batches, a request for less than one batch, a task that could not be extracted for
//     lack of memory, the end of ctx (ECANCELED or ETIMEDOUT). on_error may then be the first callback.
//   - release last: after the end or on_error, after any callback that has returned an error, and after cancel.
//     It does not wait until the tasks are extracted.
//
// The consumer may call request and cancel on any thread, also inside its callbacks. Neither blocks nor
// calls the handler. After cancel the handler is given the batch that it had requested and that r has
// given already, no error, and its release; request then does nothing. Once ctx is done, no batch is
// given any more. The producer struct stays readable for ever: calls of request and cancel after release do nothing.
//
// It takes ownership of *handler, even if it returns an error, which it does for a
// handler that is nil, released or lacks a callback, and for a nil ctx or r: the handler is then only released. *handler must
// stay where it is until it is released. The stream holds r on its own; r stays the
// caller's, and batches that one takes the other does not see. If r is waiting for a
// batch when the stream ends, the stream's hold on it ends when r has one; at once if nothing else
// holds r and its source can be interrupted, as an asynchronous stream and a copy can.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#async-device-stream-interface
func ExportAsync(ctx context.Context, r *RecordReader, handler *CArrowAsyncDeviceStreamHandler, opts ...AsyncExportOption) error {
	taken := false
	defer func() { // even if an option panics
		if !taken {
			ReleaseCArrowAsyncDeviceStreamHandler(handler)
		}
	}()
	if err := checkHandler(handler); err != nil {
		return err
	}
	if err := fielderr.CheckContext(fielderr.OpExport, ctx); err != nil {
		return err
	}
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordReader", "a reader")
	}
	o := asyncExportOptions{metadata: r.Metadata()}
	apply(&o, opts)
	taken = true
	startProducer(ctx, r, handler, o.metadata)
	return nil
}

// startProducer gives a handler that is complete the batches of r. A reader that was released is an error of the stream.
func startProducer(ctx context.Context, r *RecordReader, handler *CArrowAsyncDeviceStreamHandler, md arrow.Metadata) {
	p := &producer{ctx: ctx, handler: handler, streamMetadata: md, refs: 1, wake: make(chan struct{}, 1), given: new(given)}
	asyncProducers.Add(1)
	p.origin = live.Add("exported ArrowAsyncProducer")
	if !r.r.Hold() {
		items.Background(func() { p.refuse(exportReleased("RecordReader")) })
		return
	}
	p.reader = r
	items.Background(p.run)
}

func checkHandler(h *CArrowAsyncDeviceStreamHandler) error {
	const name = "ArrowAsyncDeviceStreamHandler"
	switch {
	case h == nil:
		return noOutput(name)
	case h.Release == 0:
		return fielderr.New(fielderr.OpExport, name+".release", "NULL", nil, ErrReleased)
	case h.OnSchema == 0:
		return fielderr.Invalid(fielderr.OpExport, name+".on_schema", "NULL", "a callback")
	case h.OnNextTask == 0:
		return fielderr.Invalid(fielderr.OpExport, name+".on_next_task", "NULL", "a callback")
	case h.OnError == 0:
		return fielderr.Invalid(fielderr.OpExport, name+".on_error", "NULL", "a callback")
	}
	return nil
}

var asyncProducers, asyncTasks atomic.Int64

// asyncTask is one batch on its way to a consumer: a bridge.Task.
type asyncTask struct {
	p     *producer    // a reference
	batch *RecordBatch // a reference
}

// ExtractData runs on the consumer's thread. It fails for lack of memory only.
func (t *asyncTask) ExtractData(out *abi.ArrowDeviceArray) int {
	defer items.Quietly(t.Release)
	if out == nil {
		return 0
	}
	err := ExportRecordBatch(t.batch, publicDevice(out), nil)
	if err != nil {
		t.p.extractionFailed(err)
		return errnoOf(err)
	}
	return 0
}

// Release gives the batch back: it was extracted, or no consumer can extract it any more. The task
// is counted down last: the release of the batch may call a producer's.
func (t *asyncTask) Release() {
	defer asyncTasks.Add(-1)
	defer t.p.drop()
	t.batch.Release()
}
