package cdevice

import (
	"context"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// AsyncProducerOptions says what [ExportAsync] gives beside the batches, and how it makes
// them.
type AsyncProducerOptions struct {
	// Metadata is of the whole stream: how many rows it has, say.
	Metadata arrow.Metadata
	// CopyTo, unless it is nil, is the device that batches are copied to, by the consumer's
	// thread, when it extracts them.
	CopyTo device.Device
	// Export are the options that batches are exported with, by the consumer's thread.
	Export []ExportOption
}

// ExportAsync gives the batches that are left in r to a handler, each exported as
// [ExportRecordBatch] does; the metadata of [RecordBatch.WithMetadata] goes beside it. It
// returns at once, and works on a goroutine of its own, which sleeps while the handler has
// not asked for more. One batch is taken from r before it is asked for, so that the end
// is told as soon as it is known. Once ctx is done, no batch is given any more.
//
// Whatever goes wrong reaches the handler: errors of r, panics in the code that makes the
// batches, a failed extraction, the end of ctx (ECANCELED, or ETIMEDOUT). Its on_error is called, then
// its release. Where a callback of the handler's returns an error, it is only
// released. After cancel, it is given the batch that r has given already, if it had asked for that, and then
// released. None of its callbacks is called while another one is. Where extracting a
// task can fail (CopyTo, Export), release comes when the last task was extracted, so that the failure
// can be reported: on_error may follow the end. A consumer that extracts only after release, or loses tasks, would
// hold the stream for ever: ctx ends it. After cancel, release waits for no task, and a task that fails
// then reports its code alone.
//
// It takes ownership of *handler, even if it returns an error, which it does for a
// handler that is nil, released or lacks a callback, since no one else can be told, and for a nil ctx or r. *handler must
// stay where it is until it is released. The stream holds r on its own; r stays the
// caller's, and batches that one takes the other does not see. Where r is waiting for a
// batch when the stream ends, the stream's hold on it ends when r has one.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#async-device-stream-interface
func ExportAsync(ctx context.Context, r *RecordReader, handler *CArrowAsyncDeviceStreamHandler, opts AsyncProducerOptions) error {
	err := checkHandler(handler)
	if err == nil {
		err = checkContext(opExport, ctx)
	}
	if err == nil && r == nil {
		err = absent(opExport, "RecordReader", "a reader")
	}
	if err != nil {
		ReleaseCArrowAsyncDeviceStreamHandler(handler)
		return err
	}
	p := &producer{ctx: ctx, handler: handler, opts: opts, refs: 1, wake: make(chan struct{}, 1), given: new(given)}
	asyncProducers.Add(1)
	p.origin = live.Add("exported ArrowAsyncProducer")
	if !r.r.hold() {
		background(func() { p.refuse(exportReleased("RecordReader")) })
		return nil
	}
	p.reader = r
	background(p.run)
	return nil
}

func checkHandler(h *CArrowAsyncDeviceStreamHandler) error {
	const name = "ArrowAsyncDeviceStreamHandler"
	switch {
	case h == nil:
		return noOutput(name)
	case h.Release == 0:
		return fieldError(opExport, name+".release", "NULL", nil, ErrReleased)
	case h.OnSchema == 0:
		return invalid(opExport, name+".on_schema", "NULL", "a callback")
	case h.OnNextTask == 0:
		return invalid(opExport, name+".on_next_task", "NULL", "a callback")
	case h.OnError == 0:
		return invalid(opExport, name+".on_error", "NULL", "a callback")
	}
	return nil
}

var asyncProducers, asyncTasks atomic.Int64

// asyncTask is one batch on its way to a consumer: a bridge.Task.
type asyncTask struct {
	p     *producer    // a reference
	batch *RecordBatch // a reference
}

// ExtractData runs on the consumer's thread.
func (t *asyncTask) ExtractData(out *abi.ArrowDeviceArray) int {
	err := t.extract(publicDevice(out))
	t.p.extracted(err)
	quietly(t.Release) // out is filled, or the error is known
	if err != nil {
		return errnoOf(err)
	}
	return 0
}

func (t *asyncTask) extract(out *CArrowDeviceArray) (err error) {
	if out == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	b := t.batch
	if dev := t.p.opts.CopyTo; dev != nil {
		if b, err = b.CopyTo(t.p.ctx, dev); err != nil {
			return err
		}
		defer quietly(b.Release)
	}
	return ExportRecordBatch(b, out, nil, t.p.opts.Export...)
}

// Release lets go of the batch: it was extracted, or no consumer can extract it any more. The task
// is counted down last: the release of the batch may call a producer's.
func (t *asyncTask) Release() {
	defer asyncTasks.Add(-1)
	defer t.p.drop()
	t.batch.Release()
}

// exportedType is the device type of the batches, made from some of type t.
func (o *AsyncProducerOptions) exportedType(t device.Type) (_ device.Type, err error) {
	defer func() {
		if v := recover(); v != nil { // an option's
			err = panicError(v)
		}
	}()
	if o.CopyTo != nil {
		t = o.CopyTo.ID().Type
	}
	return exportedType(t, o.Export)
}

// extractionCanFail says that the end of the stream is not the end of what can go wrong.
func (o *AsyncProducerOptions) extractionCanFail() bool {
	return o.CopyTo != nil || len(o.Export) > 0
}
