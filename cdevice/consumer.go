package cdevice

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// consumer is the Go side of a handler filled by ImportAsync: a bridge.Handler, and the source of
// the stream's reader. The callbacks only store their arguments; the goroutine that reads makes the
// batches.
type consumer struct {
	queue   int64
	opts    importOptions   // of each batch
	ctx     context.Context // its end ends the stream
	word    handle.Word
	pins    runtime.Pinner // of the handler: C keeps its address
	unwatch func() bool    // forgets the context
	origin  *live.Object

	// calling is full during a call of the producer, so that there is one call at a time. Of our
	// callbacks, only on_schema fills it, which makes the first call, and those that wait for the
	// last call. mu is never held during a call of the producer or of a task.
	calling chan struct{}

	given *extraction // of Next

	mu       sync.Mutex
	changed  sync.Cond
	producer *abi.ArrowAsyncProducer // from on_schema to release
	begun    *streamBegin            // from on_schema
	tasks    items.Queue[readyTask]
	room     int64     // batches that are yet to be requested
	asking   bool      // a goroutine is requesting them, or is about to, and will check for more
	asks     bool      // the goroutine of askInTurn was started
	roomy    sync.Cond // asking has become true, or the stream has ended
	wanted   int64     // batches that were requested and have not arrived
	err      error     // the error that the stream ended with

	taskErr error // of a failed task: on_error may follow with a message

	ended    bool // the producer is not called any more: it reported the end or an error, or broke the contract
	dropping bool // arriving tasks are dropped
	stopped  bool // the stream was ended from this side

	known    chan struct{} // closed when there is a schema, or there will be none
	released chan struct{} // closed when release is called

	parts   items.Countdown // close, gone and emptied
	gone    func()          // no call of the producer is running, or one does not return
	emptied func()          // the stream was ended from this side, and no task is left
}

// readyTask is a task that has arrived. It is extracted exactly once.
type readyTask struct {
	task     abi.ArrowAsyncTask
	metadata arrow.Metadata
}

// streamBegin holds the arguments of on_schema.
type streamBegin struct {
	schema     *arrow.Schema
	metadata   arrow.Metadata
	deviceType device.Type
}

func newConsumer(ctx context.Context, handler *CArrowAsyncDeviceStreamHandler, queueSize int, opts *importOptions) *consumer {
	c := &consumer{
		queue: int64(queueSize), opts: *opts, ctx: ctx, given: new(extraction),
		calling: make(chan struct{}, 1), known: make(chan struct{}), released: make(chan struct{}),
	}
	c.parts.Init(3, nil)
	c.gone, c.emptied = sync.OnceFunc(c.parts.Part), sync.OnceFunc(c.parts.Part)
	c.changed.L, c.roomy.L = &c.mu, &c.mu
	c.pins.Pin(handler) // c is kept reachable by its handle
	c.word = bridge.ExportHandler(c, handlerMirror(handler))
	asyncStreams.Add(1)
	c.origin = live.Add("AsyncStream")
	c.unwatch = context.AfterFunc(ctx, func() {
		if c.count() {
			defer items.Goroutines.Add(-1)
			c.stopWithContext()
		}
	})
	return c
}

// count counts the goroutine of the context. It reports false if the handler was released: all
// counts may be zero then, and there is nothing to stop.
func (c *consumer) count() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReleased() && c.tasks.Size() == 0 {
		return false
	}
	items.Goroutines.Add(1)
	return true
}

// stopWithContext ends the stream because its context is done. The goroutine of AfterFunc calls it
// for goroutines that wait. The loop that takes a batch calls it too, since the goroutine of
// AfterFunc may not have run yet.
func (c *consumer) stopWithContext() {
	if err := fielderr.ContextError(c.ctx, fielderr.OpRead); err != nil {
		c.stop(err)
	}
}

// tell wakes the goroutines that wait for a change. mu is held.
func (c *consumer) tell() {
	c.changed.Broadcast()
	if c.over() {
		c.roomy.Signal()
	}
	if c.begun != nil || c.ended || c.stopped {
		select {
		case <-c.known:
		default:
			close(c.known)
		}
	}
}

// OnSchema takes the schema, even if it returns an error, and requests the first batches.
func (c *consumer) OnSchema(p *abi.ArrowAsyncProducer, out *abi.ArrowSchema) int {
	s, err := c.opts.Schema(out)
	if err != nil {
		err = fielderr.Within("ArrowAsyncDeviceStreamHandler.on_schema", err)
	} else {
		err = checkProducer(p)
	}
	var begun streamBegin
	if err == nil {
		begun.schema, begun.deviceType = s, device.Type(p.DeviceType)
		begun.metadata, err = schema.ReadMetadata("ArrowAsyncProducer.additional_metadata", p.AdditionalMetadata)
	}
	if !bridge.Calling(c.word) { // otherwise it is a second call, which is refused
		c.calling <- struct{}{} // before another goroutine sees the producer
		defer func() { <-c.calling }()
	}
	if code := c.begin(p, &begun, err); code != 0 {
		return code
	}
	c.ask()
	return 0
}

func (c *consumer) begin(p *abi.ArrowAsyncProducer, begun *streamBegin, err error) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && (c.ended || c.begun != nil) {
		err = wrongCall("on_schema", "the first call, once")
	}
	if err != nil {
		return c.refuse(err)
	}
	if c.stopped {
		return errnoOf(context.Canceled)
	}
	c.producer, c.begun = p, begun
	c.room, c.asking = c.queue, true
	c.tell()
	return 0
}

func checkProducer(p *abi.ArrowAsyncProducer) error {
	switch {
	case p == nil:
		return fielderr.Invalid(fielderr.OpImport, "ArrowAsyncDeviceStreamHandler.producer", "NULL", "a struct")
	case p.DeviceType <= 0:
		return fielderr.Invalid(fielderr.OpImport, "ArrowAsyncProducer.device_type", p.DeviceType, "the type of a device")
	case p.Request == 0:
		return fielderr.Invalid(fielderr.OpImport, "ArrowAsyncProducer.request", "NULL", "a callback")
	case p.Cancel == 0:
		return fielderr.Invalid(fielderr.OpImport, "ArrowAsyncProducer.cancel", "NULL", "a callback")
	}
	return nil
}

// wrongCall is the error for a callback that the producer must not call now.
func wrongCall(callback, want string) error {
	return fielderr.Invalid(fielderr.OpImport, "ArrowAsyncDeviceStreamHandler."+callback, "called", want)
}

// refuse ends the stream because the producer broke the contract, and returns the code for the
// callback to return: only release may follow. mu is held.
func (c *consumer) refuse(err error) int {
	if c.err == nil && !c.stopped {
		c.err = err
	}
	c.ended = true
	c.tell()
	return errnoOf(err)
}

// OnNextTask moves the task into the queue. A task that is not queued is dropped here.
func (c *consumer) OnNextTask(task *abi.ArrowAsyncTask, metadata uintptr) int {
	md, err := schema.ReadMetadata("ArrowAsyncDeviceStreamHandler.on_next_task.metadata", metadata)
	if err == nil && task != nil && task.ExtractData == 0 {
		err = fielderr.Invalid(fielderr.OpImport, "ArrowAsyncTask.extract_data", "NULL", "a callback")
	}
	kept, code := c.arrived(task, md, err)
	if task != nil && task.ExtractData != 0 && !kept {
		c.dropTask(task)
	}
	if task == nil || code != 0 {
		c.settle()
	}
	return code
}

func (c *consumer) arrived(task *abi.ArrowAsyncTask, md arrow.Metadata, err error) (kept bool, code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
	case c.begun == nil && !c.ended:
		err = wrongCall("on_next_task", "on_schema before it")
	case c.ended:
		err = wrongCall("on_next_task", "nothing after the end")
	case task != nil && c.wanted == 0:
		err = wrongCall("on_next_task", "no more tasks than were requested")
	}
	if err != nil {
		return false, c.refuse(err)
	}
	defer c.tell()
	if task == nil {
		c.ended = true
		return false, 0
	}
	c.wanted--
	if c.stopped || c.dropping {
		return false, 0
	}
	c.tasks.Push(readyTask{*task, md})
	return true, 0
}

// OnError stores the error, which the reader returns after the batches that are ready.
func (c *consumer) OnError(code int, message string, metadata uintptr) {
	md, _ := schema.ReadMetadata("", metadata) // invalid metadata must not hide the error
	defer c.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.stopped {
		c.err = &ProducerError{Callback: "ArrowAsyncDeviceStreamHandler.on_error", Code: code, Message: strings.ToValidUTF8(message, "\ufffd"), Metadata: md}
	}
	c.ended = true
	c.tell()
}

// errNoEnd is the error of a stream whose handler was released before its end.
var errNoEnd = fmt.Errorf("cdevice: import: ArrowAsyncDeviceStreamHandler.release before the end of the stream: %w", io.ErrUnexpectedEOF)

// opened returns the arguments of on_schema, or the error of a stream that ended without a schema.
func (c *consumer) opened() (*streamBegin, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil {
		return nil, c.err
	}
	return c.begun, nil
}

// stop ends the stream from this side, once. err is the error of the stream, if it has not ended
// before.
func (c *consumer) stop(err error) {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return
	}
	switch {
	case c.err != nil:
	case c.taskErr != nil:
		c.err = c.taskErr
	case !c.ended || c.tasks.Size() > 0:
		c.err = err
	}
	c.stopped = true
	c.tell()
	nothing := c.ended && c.tasks.Size() == 0 // to cancel or to drop
	c.mu.Unlock()
	if nothing {
		c.emptied()
		return
	}
	items.Background(func() { // the producer may not return
		defer c.emptied()
		c.cancel()
		c.drop()
	})
}

// drop drops the tasks that are ready.
func (c *consumer) drop() {
	c.mu.Lock()
	tasks := c.tasks.PopAll()
	c.mu.Unlock()
	for _, ready := range tasks {
		task := ready.task
		c.dropTask(&task)
	}
}

// dropTask extracts a task with NULL, or, for importopt.Options.LikeArrowGo, into a struct that it releases.
func (c *consumer) dropTask(task *abi.ArrowAsyncTask) {
	if !c.opts.LikeArrowGo {
		bridge.CallExtractData(task, nil)
		return
	}
	out := new(abi.ArrowDeviceArray)
	if code := bridge.CallExtractData(task, out); code == 0 && out.Array.Release != 0 {
		bridge.CallArrayRelease(&out.Array)
	}
}

// Interrupt ends the stream. The reader's Close calls it to end the wait of a running Next.
func (c *consumer) Interrupt() { c.stop(items.ClosedReader()) }

// Close ends the stream. done is called when the producer has released the handler and no task is left.
func (c *consumer) Close(done func()) {
	c.parts.Last = done // called by the last of the three
	defer c.parts.Part()
	c.unwatch()
	c.Interrupt()
}

var asyncStreams atomic.Int64
