package cpeer

// #include <stdlib.h>
// #include "async.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Event is a call that a [Consumer] received.
type Event int8

const (
	OnSchema   Event = C.CPEER_ON_SCHEMA
	OnNextTask Event = C.CPEER_ON_NEXT_TASK
	OnEnd      Event = C.CPEER_ON_END
	OnError    Event = C.CPEER_ON_ERROR
	Release    Event = C.CPEER_RELEASE
)

func (e Event) String() string {
	return [...]string{"nothing", "on_schema", "on_next_task", "end", "on_error", "release"}[e]
}

// Behaviour controls the callbacks of a [Consumer].
type Behaviour struct {
	SchemaRequests, SchemaN int64 // on_schema calls request(SchemaN) so many times
	TaskRequests, TaskN     int64 // each on_next_task too
	SchemaCode              int   // the result of on_schema
	TaskCode                int   // the result of on_next_task, if not 0
	TaskCodeAt              int   // for this task; the end is the one after the last
	CancelInSchema          bool
	CancelAt                int  // task in whose callback cancel is called; 0 is never, 1 the first
	DropAtOnce              bool // on_next_task extracts with NULL
	LeaveSchema             bool // on_schema does not take the schema
}

// Consumer is a handler in C: it records the calls that it receives, and keeps the tasks.
type Consumer struct{ c *C.struct_cpeer_consumer }

// NewConsumer returns a consumer. Free it.
func NewConsumer(b Behaviour) Consumer {
	c := C.cpeer_consumer_new()
	c.schema_requests, c.schema_n = C.int64_t(b.SchemaRequests), C.int64_t(b.SchemaN)
	c.task_requests, c.task_n = C.int64_t(b.TaskRequests), C.int64_t(b.TaskN)
	c.schema_code, c.task_code = C.int(b.SchemaCode), C.int(b.TaskCode)
	if b.TaskCode != 0 {
		c.fail_at = C.int64_t(b.TaskCodeAt)
	}
	if b.CancelAt > 0 {
		c.cancel_at = C.int64_t(b.CancelAt - 1)
	}
	if b.CancelInSchema {
		c.cancel_at = -1
	}
	if b.DropAtOnce {
		c.extract_at_once = 1
	}
	if b.LeaveSchema {
		c.leave_schema = 1
	}
	return Consumer{c}
}

// Handler is the C struct.
func (c Consumer) Handler() *abi.ArrowAsyncDeviceStreamHandler {
	return (*abi.ArrowAsyncDeviceStreamHandler)(unsafe.Pointer(&c.c.handler))
}

// Producer is the producer that the handler was given.
func (c Consumer) Producer() Producers {
	return Producers{c.c.handler.producer}
}

// Free frees the consumer, whose handler was released.
func (c Consumer) Free() { C.cpeer_consumer_free(c.c) }

// WaitTasks waits until n tasks have come, or release has.
func (c Consumer) WaitTasks(n int) error { return waited(C.cpeer_wait_tasks(c.c, C.int64_t(n))) }

// WaitReleased waits until the handler is released.
func (c Consumer) WaitReleased() error { return waited(C.cpeer_wait_released(c.c)) }

// WaitEvent waits until a call has come and no call is running, or until release has come.
func (c Consumer) WaitEvent(e Event) error { return waited(C.cpeer_wait_event(c.c, C.int(e))) }

func waited(errno C.int) error {
	if errno != 0 {
		return fmt.Errorf("cpeer: wait: %w", syscall.Errno(errno))
	}
	return nil
}

// The following are of a consumer that was released, or waited for.

// Events returns the calls received, in order.
func (c Consumer) Events() []Event {
	return unsafe.Slice((*Event)(unsafe.Pointer(&c.c.events[0])), int(c.c.n_events))
}

// Tasks are those that came, at their addresses in C memory.
func (c Consumer) Tasks() []abi.ArrowAsyncTask {
	return unsafe.Slice((*abi.ArrowAsyncTask)(unsafe.Pointer(&c.c.tasks[0])), int(c.c.n_tasks))
}

// Overlaps is how many callbacks came while another one was running.
func (c Consumer) Overlaps() int { return int(c.c.overlaps) }

// Reentrant is how many callbacks came from inside a call of the producer, on the same thread.
func (c Consumer) Reentrant() int { return int(c.c.reentrant) }

// MetadataChanged reports whether the producer's metadata was another one in release.
func (c Consumer) MetadataChanged() bool { return c.c.metadata_changed != 0 }

// DeviceType is the producer's.
func (c Consumer) DeviceType() int32 { return int32(c.c.device_type) }

// Error has the arguments of on_error.
func (c Consumer) Error() (code int, message string) {
	return int(c.c.error_code), C.GoString(&c.c.error_message[0])
}

// Metadata is the address of a copy of the producer's metadata, or 0.
func (c Consumer) Metadata() uintptr {
	if c.c.metadata_size == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&c.c.metadata[0]))
}

// TaskMetadata is the address of a copy of the last task's metadata, or 0.
func (c Consumer) TaskMetadata() uintptr {
	if c.c.task_metadata_size == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&c.c.task_metadata[0]))
}

// Extract calls a task's extract_data; out is nil where the data is not wanted.
func Extract(task *abi.ArrowAsyncTask, out *abi.ArrowDeviceArray) int {
	return int(C.cpeer_extract((*C.struct_ArrowAsyncTask)(unsafe.Pointer(task)), (*C.struct_ArrowDeviceArray)(unsafe.Pointer(out))))
}

// Producers calls a producer's callbacks.
type Producers struct{ p *C.struct_ArrowAsyncProducer }

// Request calls request.
func (p Producers) Request(n int64) { C.cpeer_request(p.p, C.int64_t(n)) }

// Cancel calls cancel.
func (p Producers) Cancel() { C.cpeer_cancel(p.p) }

// RequestOnThreads calls request on so many new threads at once, 64 at most.
func (p Producers) RequestOnThreads(n int64, threads int) error {
	return waited(C.cpeer_request_on_threads(p.p, C.int64_t(n), C.int(threads)))
}

// CancelOnThreads calls cancel on so many new threads at once, 64 at most.
func (p Producers) CancelOnThreads(threads int) error {
	return waited(C.cpeer_request_on_threads(p.p, 0, C.int(threads)))
}

// CallAllOnThreads calls request, then cancel, of all producers, on each of so many new threads at
// once, 64 at most.
func CallAllOnThreads(all []Producers, threads int) error {
	structs := (**C.struct_ArrowAsyncProducer)(unsafe.Pointer(unsafe.SliceData(all)))
	return waited(C.cpeer_call_all_on_threads(structs, C.int64_t(len(all)), C.int(threads)))
}

// Load keeps so many new threads busy, 8 at most, until the returned function is called.
func Load(threads int) (end func()) {
	load := C.cpeer_load_begin(C.int(threads))
	return func() { C.cpeer_load_end(load) }
}

// In is the action of a [Producer] in request and cancel.
type In int

const (
	InNothing In = C.CPEER_NOTHING
	InRelease In = C.CPEER_SEND_RELEASE // releases the handler, on the same thread
	InError   In = C.CPEER_SEND_ERROR   // on_error and release, on the same thread
	InWait    In = C.CPEER_WAIT         // until Let
)

// Producer is a producer in C, whose calls of the handler the test makes; each is made
// on a thread of its own, which Go has never seen.
type Producer struct {
	p    *C.struct_cpeer_producer
	tree Tree
}

// NewProducer returns a producer for the handler; its tasks give the tree. Free it.
func NewProducer(handler *abi.ArrowAsyncDeviceStreamHandler, tree Tree) Producer {
	p := C.cpeer_producer_new((*C.struct_ArrowAsyncDeviceStreamHandler)(unsafe.Pointer(handler)))
	p.tree = tree.root
	return Producer{p, tree}
}

// Free frees the producer, which has released the handler and has no call running.
func (p Producer) Free() { C.cpeer_producer_free(p.p) }

// Struct is the C struct.
func (p Producer) Struct() *abi.ArrowAsyncProducer {
	return (*abi.ArrowAsyncProducer)(unsafe.Pointer(&p.p.producer))
}

// InRequest sets the action of request and cancel from now on.
func (p Producer) InRequest(what In) { p.p.in_request = C.int(what) }

// Schema calls on_schema. It gives the handler its producer first.
func (p Producer) Schema(s *abi.ArrowSchema) int {
	p.p.handler.producer = &p.p.producer
	return p.SchemaWithoutProducer(s)
}

// SchemaWithoutProducer calls on_schema.
func (p Producer) SchemaWithoutProducer(s *abi.ArrowSchema) int {
	return int(C.cpeer_send_schema(p.p, (*C.struct_ArrowSchema)(unsafe.Pointer(s))))
}

// Task is one task of a [Producer]. Free it, when it was extracted.
type Task struct{ t *C.struct_cpeer_task }

// NewTask returns a task. Unless code is 0, extract_data fails with it.
func (p Producer) NewTask(code int) Task {
	t := (*C.struct_cpeer_task)(C.calloc(1, C.sizeof_struct_cpeer_task))
	t.p, t.code, t.device_type = p.p, C.int(code), p.p.producer.device_type
	return Task{t}
}

// OnDevice makes the task's array claim another type of device.
func (t Task) OnDevice(deviceType int32) { t.t.device_type = C.int32_t(deviceType) }

// NoArray makes extract_data succeed without an array.
func (t Task) NoArray() { t.t.no_array = 1 }

// Wait makes extract_data wait for the producer's Let, where the data is wanted.
func (t Task) Wait() { t.t.wait = 1 }

// Extracted is how often extract_data was called.
func (t Task) Extracted() int { return int(t.t.extracted) }

// Free frees the task.
func (t Task) Free() { C.free(unsafe.Pointer(t.t)) }

// Send calls on_next_task.
func (p Producer) Send(t Task, metadata []byte) int {
	m := cBytes(metadata)
	defer C.free(m)
	return int(C.cpeer_send_task(p.p, t.t, (*C.char)(m)))
}

// SendAtOnce calls on_next_task for each task, on a thread for each, all at once, 64 at most. It
// returns how many were refused.
func (p Producer) SendAtOnce(tasks []Task) int {
	return int(C.cpeer_send_tasks_at_once(p.p, (**C.struct_cpeer_task)(unsafe.Pointer(unsafe.SliceData(tasks))), C.int64_t(len(tasks))))
}

// SendBare calls on_next_task with a task whose extract_data is NULL.
func (p Producer) SendBare() int { return int(C.cpeer_send_bare_task(p.p)) }

// End calls on_next_task with NULL.
func (p Producer) End() int { return int(C.cpeer_send_end(p.p)) }

// Error calls on_error. An empty message is NULL.
func (p Producer) Error(code int, message string, metadata []byte) {
	m := cBytes(metadata)
	defer C.free(m)
	var text *C.char
	if message != "" {
		text = C.CString(message)
		defer C.free(unsafe.Pointer(text))
	}
	C.cpeer_send_error(p.p, C.int(code), text, (*C.char)(m))
}

// Release calls release.
func (p Producer) Release() { C.cpeer_send_release(p.p) }

func cBytes(b []byte) unsafe.Pointer {
	if len(b) == 0 {
		return nil
	}
	return C.CBytes(b)
}

// WaitRequested waits until n batches were requested in all.
func (p Producer) WaitRequested(n int64) error {
	return waited(C.cpeer_wait_requested(p.p, C.int64_t(n)))
}

// WaitCancelled waits until cancel was called.
func (p Producer) WaitCancelled() error { return waited(C.cpeer_wait_cancelled(p.p)) }

// WaitWaiting waits until a call, or a task, waits for Let.
func (p Producer) WaitWaiting() error { return waited(C.cpeer_wait_waiting(p.p)) }

// WaitReturned waits until no call of request or cancel is running. A stream that is ended from
// inside request can be at its end earlier.
func (p Producer) WaitReturned() error { return waited(C.cpeer_wait_returned(p.p)) }

// Let releases all waiting callbacks.
func (p Producer) Let() { C.cpeer_let(p.p) }

// Calls counts the calls that a [Producer] received.
type Calls struct {
	Requests, Requested, LastN, Cancels int64
	// Late are calls after release, and requests after cancel; Overlaps, calls that came
	// while another one was running.
	Late, Overlaps int64
	Forbidden      int64 // calls from inside on_error and release
	// Of tasks: extracted with data, with NULL, and once more.
	Extracted, Dropped, Twice int64
	// Arrays are those of tasks that are not released.
	Arrays int64
}

// Calls returns the calls so far.
func (p Producer) Calls() Calls {
	c := C.cpeer_producer_now(p.p)
	return Calls{
		int64(c.requests), int64(c.requested), int64(c.last_n), int64(c.cancels),
		int64(c.late), int64(c.overlaps), int64(c.forbidden), int64(c.extracted), int64(c.dropped), int64(c.twice), int64(c.arrays),
	}
}
