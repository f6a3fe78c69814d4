package cdevice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// producer is the Go side of an ArrowAsyncProducer of ExportAsync: a bridge.Producer. Only its
// goroutine calls the handler; request, cancel and tasks set the state and wake it.
type producer struct {
	ctx     context.Context
	reader  *RecordReader // a reference
	handler *CArrowAsyncDeviceStreamHandler
	c       *abi.ArrowAsyncProducer // until the last reference is dropped
	wake    chan struct{}           // wakes the goroutine: the state has changed
	origin  *live.Object

	given          *given
	streamMetadata arrow.Metadata
	metadata       []byte // of a task

	mu        sync.Mutex
	refs      int   // the goroutine, the one that reads batches, and each task
	requested int64 // in all
	delivered int64
	cancelled bool
	failed    error // an invalid request, or a task that could not be extracted

	releasing atomic.Bool   // the handler is being released
	ended     chan struct{} // closed when the handler was released
	why       error         // how the stream ended, once ended is closed
}

// byConsumer is the end of a producer's stream by its consumer, which is told no error.
type byConsumer struct {
	p     *producer
	text  string
	wraps []error
}

func (e *byConsumer) Error() string { return e.text }

func (e *byConsumer) Unwrap() []error { return e.wraps }

func (p *producer) errCancelled() error {
	return &byConsumer{p, "cdevice: export: ArrowAsyncProducer.cancel was called", []error{context.Canceled}}
}

// refused returns the error of a callback of the handler that returned a code, or nil if that is 0.
func (p *producer) refused(callback string, code int) error {
	if code == 0 {
		return nil
	}
	return &byConsumer{p, fmt.Sprintf("cdevice: export: ArrowAsyncDeviceStreamHandler.%s: %s", callback, codeText(code)), errorsOf(code)}
}

// given holds the arguments of callbacks, during the call. It has no Go pointers in the same
// object: a consumer that is written in Go passes it to C, and cgo's checks search the whole
// object.
type given struct {
	schema abi.ArrowSchema
	task   abi.ArrowAsyncTask
}

func (p *producer) run() {
	defer p.drop()
	b := p.take()
	err := p.produce(b)
	close(b.stop)
	switch {
	case !b.asked: // the reader is not waiting for a batch
		for range b.got {
		}
	case p.reader.r.Refs.Sole(): // nothing else waits for the batch
		p.reader.r.Interrupt()
	}
	p.finish(err)
}

// finish reports the error that ended the stream to the handler, unless the consumer ended it, and
// releases the handler.
func (p *producer) finish(err error) {
	p.mu.Lock()
	tell := err != nil && !p.cancelled // a cancelled handler gets no error
	p.mu.Unlock()
	if end, is := err.(*byConsumer); tell && !(is && end.p == p) { // the source may have failed with another stream's end
		if p.c == nil { // the handler has a producer before every callback except release
			p.populate(nil)
		}
		bridge.CallOnError(handlerMirror(p.handler), errnoOf(err), cText(err.Error()), metadataOf(err))
	}
	h := p.handler
	p.releasing.Store(true)
	bridge.CallHandlerRelease(handlerMirror(h))
	exporting.CompareAndDelete(h, p) // unless the memory is another stream's handler by now
	p.handler = nil
	p.why = err
	close(p.ended)
}

// metadataOf returns the encoded metadata of an error that another asynchronous stream reported.
func metadataOf(err error) []byte {
	var pe *ProducerError
	if !errors.As(err, &pe) {
		return nil
	}
	md, _ := schema.AppendMetadata(nil, "", pe.Metadata) // invalid metadata must not hide the error
	return md
}

// batches reads the reader on a goroutine of its own, since the reader may be waiting for a batch
// when the stream has to end.
type batches struct {
	ask   chan struct{}
	asked bool // a batch was asked for and not received
	got   chan items.Result[*RecordBatch]
	stop  chan struct{}
}

func (p *producer) take() *batches {
	b := &batches{ask: make(chan struct{}, 1), got: make(chan items.Result[*RecordBatch]), stop: make(chan struct{})}
	p.mu.Lock()
	p.refs++
	p.mu.Unlock()
	items.Background(func() {
		defer p.drop()
		defer close(b.got) // closed without an item if the reader's code ends the goroutine
		defer items.Quietly(p.reader.Release)
		b.run(&p.reader.r)
	})
	return b
}

func (b *batches) run(r *items.Reader[*RecordBatch]) {
	for {
		select {
		case <-b.ask:
		case <-b.stop:
			return
		}
		var next items.Result[*RecordBatch]
		next.Item, next.Err = r.Pull()
		select {
		case b.got <- next:
		case <-b.stop:
			next.Drop()
			return
		}
	}
}

var errNoAnswer = errors.New("cdevice: export: the reader ended its goroutine")

// produce makes all calls of the handler up to on_error and release. It returns the error that ended
// the stream, or nil after the end. It holds at most one batch that was not requested. After cancel it sends the batch that
// it holds, if the handler had requested that, and does not read another one, which may never
// arrive.
func (p *producer) produce(b *batches) error {
	var next items.Result[*RecordBatch]
	have := false
	defer func() {
		if have {
			next.Drop()
		}
	}()
	if err := p.begin(); err != nil {
		return err
	}
	for {
		over, may, err := p.state()
		switch {
		case err != nil:
			return err
		case over && !(have && may && next.Err == nil):
			return p.errCancelled()
		case have && next.Err == io.EOF:
			return p.refused("on_next_task", bridge.CallOnNextTask(handlerMirror(p.handler), nil, nil))
		case have && next.Err != nil:
			return next.Err
		case have && may:
			have = false
			if err := p.deliver(next.Item); err != nil {
				return err
			}
		}
		if over {
			continue // the batch in hand was sent
		}
		if !have && !b.asked {
			b.asked = true
			b.ask <- struct{}{}
		}
		select {
		case answer, ok := <-b.got:
			if b.asked = false; !ok {
				return errNoAnswer
			}
			next, have = answer, true
		case <-p.wake:
		case <-p.ctx.Done():
		}
	}
}

// state reports whether the stream was cancelled and whether a batch may be sent, and returns the
// error of a failed stream.
func (p *producer) state() (over, may bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.failed
	if err == nil && p.ctx.Err() != nil {
		err = fmt.Errorf("cdevice: export: %w", p.ctx.Err())
	}
	return p.cancelled, p.requested > p.delivered, err
}

// begin makes the struct and calls on_schema.
func (p *producer) begin() error {
	md, err := schema.AppendMetadata(nil, "ArrowAsyncProducer.additional_metadata", p.streamMetadata)
	if err != nil {
		return err
	}
	if err := p.reader.exportSchema(&p.given.schema); err != nil {
		return err
	}
	if !p.populate(md) {
		bridge.CallSchemaRelease(&p.given.schema)
		return cstruct.ErrNoMemory
	}
	code := bridge.CallOnSchema(handlerMirror(p.handler), &p.given.schema)
	if p.given.schema.Release != 0 { // not moved
		bridge.CallSchemaRelease(&p.given.schema)
	}
	return p.refused("on_schema", code)
}

// populate makes the handler's producer. It returns false if there is no memory.
func (p *producer) populate(metadata []byte) bool {
	t := device.CPU
	if p.reader != nil { // nil is an error that the handler is told
		t = p.reader.DeviceType()
	}
	p.c = bridge.NewProducer(p, int32(t), metadata)
	p.handler.Producer = uintptr(unsafe.Pointer(p.c))
	return p.c != nil
}

// deliver sends a batch, which the task then owns.
func (p *producer) deliver(b *RecordBatch) error {
	var err error
	p.metadata, err = schema.AppendMetadata(p.metadata[:0], "RecordBatch.metadata", b.Metadata())
	if err != nil {
		items.Quietly(b.Release)
		return err
	}
	p.mu.Lock()
	p.refs++
	p.delivered++
	p.mu.Unlock()
	asyncTasks.Add(1)
	word := bridge.ExportTask(&asyncTask{p: p, batch: b}, &p.given.task)
	code := bridge.CallOnNextTask(handlerMirror(p.handler), &p.given.task, p.metadata)
	if code == 0 {
		return nil
	}
	if t := handle.Take(word); t != nil { // not extracted, and the handler refused it
		items.Quietly(t.Release)
	}
	return p.refused("on_next_task", code)
}

// Request is the producer's callback. Any thread may call it, even inside a callback. After Cancel
// it does nothing.
func (p *producer) Request(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cancelled:
		return
	case n <= 0:
		p.fail(fielderr.Invalid(fielderr.OpExport, "ArrowAsyncProducer.request.n", n, "at least 1"))
	case n > math.MaxInt64-p.requested:
		p.requested = math.MaxInt64
	default:
		p.requested += n
	}
	p.rouse()
}

// Cancel is the producer's callback. Any thread may call it, any number of times.
func (p *producer) Cancel() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cancelled {
		p.cancelled = true
		p.rouse()
	}
}

// extractionFailed ends the stream with the error of a task, unless it has ended.
func (p *producer) extractionFailed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(err)
	p.rouse()
}

// fail stores the first error. mu is held.
func (p *producer) fail(err error) {
	if p.failed == nil {
		p.failed = err
	}
}

// rouse wakes the goroutine, or makes its next wait end at once.
func (p *producer) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// drop drops a reference. The last one ends the struct.
func (p *producer) drop() {
	p.mu.Lock()
	p.refs--
	last := p.refs == 0
	p.mu.Unlock()
	if !last {
		return
	}
	if p.c != nil {
		bridge.EndProducer(p.c)
	}
	p.origin.Remove()
	asyncProducers.Add(-1)
}

// Release does nothing: the struct's handle requires it, and drop ends the producer.
func (p *producer) Release() {}

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

// Release drops the batch, which was extracted or can no longer be. The task is counted until the
// end of it, since releasing the batch may call a producer's callback.
func (t *asyncTask) Release() {
	defer asyncTasks.Add(-1)
	defer t.p.drop()
	t.batch.Release()
}
