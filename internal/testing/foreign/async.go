package foreign

// #include <stdlib.h>
// #include "foreign.h"
import "C"

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// AsyncConsumer is a consumer of an asynchronous stream, which keeps the tasks.
type AsyncConsumer struct{ c *C.struct_foreign_consumer }

// NewAsyncConsumer returns a consumer that requests so many batches at first. It refuses task number refuseAt, unless that is 0,
// with the code.
func NewAsyncConsumer(first, refuseAt, code int) AsyncConsumer {
	c := (*C.struct_foreign_consumer)(C.calloc(1, C.sizeof_struct_foreign_consumer))
	c.first, c.refuse_at, c.code = C.int64_t(first), C.int64_t(refuseAt), C.int(code)
	return AsyncConsumer{c}
}

// Handler fills the handler, once.
func (a AsyncConsumer) Handler() *cdevice.CArrowAsyncDeviceStreamHandler {
	return (*cdevice.CArrowAsyncDeviceStreamHandler)(unsafe.Pointer(C.foreign_consumer_begin(a.c)))
}

// Tasks is the number of tasks that have come.
func (a AsyncConsumer) Tasks() int { return int(C.foreign_load(&a.c.tasks_count)) }

// Begun reports whether the schema has come, or will not.
func (a AsyncConsumer) Begun() bool { return C.foreign_load(&a.c.begun) != 0 }

// Ended reports whether the end has come.
func (a AsyncConsumer) Ended() bool { return C.foreign_load(&a.c.ended) != 0 }

// Released reports whether the handler was released.
func (a AsyncConsumer) Released() bool { return C.foreign_load(&a.c.released) != 0 }

// Again is the number of calls that must not have come.
func (a AsyncConsumer) Again() int { return int(C.foreign_load(&a.c.again)) }

// Failed returns the arguments of on_error. ok is false if it was not called.
func (a AsyncConsumer) Failed() (answer Answer, ok bool) {
	if C.foreign_load(&a.c.failed) == 0 {
		return Answer{}, false
	}
	return Answer{int(a.c.error_code), C.GoString(&a.c.error_text[0])}, true
}

// Request requests n more.
func (a AsyncConsumer) Request(n int, thread bool) {
	C.foreign_request(a.c, C.int64_t(n), flag(thread))
}

// Cancel cancels the stream.
func (a AsyncConsumer) Cancel(thread bool) { C.foreign_cancel(a.c, flag(thread)) }

// Extract extracts a task, once; a nil out drops it. It returns an errno, or 0.
func (a AsyncConsumer) Extract(task int, out *cdevice.CArrowDeviceArray, thread bool) int {
	return int(C.foreign_extract(a.c, C.int64_t(task), (*C.struct_ArrowDeviceArray)(unsafe.Pointer(out)), flag(thread)))
}

// Free frees the consumer, whose handler was released.
func (a AsyncConsumer) Free() { C.free(unsafe.Pointer(a.c)) }

// AsyncTrouble is a failure of the producer of an asynchronous stream; see foreign.h.
type AsyncTrouble int

// The ways to fail.
const (
	Well        = AsyncTrouble(C.FOREIGN_WELL)
	Error       = AsyncTrouble(C.FOREIGN_ERROR)
	Lost        = AsyncTrouble(C.FOREIGN_LOST)
	Extract     = AsyncTrouble(C.FOREIGN_EXTRACT)
	ExtractTold = AsyncTrouble(C.FOREIGN_EXTRACT_TOLD)
	Flood       = AsyncTrouble(C.FOREIGN_FLOOD)
)

// NewHandler returns a handler in C memory, filled with garbage; [Forget] frees it.
func NewHandler() *cdevice.CArrowAsyncDeviceStreamHandler {
	return (*cdevice.CArrowAsyncDeviceStreamHandler)(garbage(C.sizeof_struct_ArrowAsyncDeviceStreamHandler))
}

// Push describes a producer of an asynchronous stream, which sends batches from a thread of its own.
type Push struct {
	Schema    *arrow.Schema
	ID        device.ID
	Producers []*Producer // whose structs it owns from then on
	Trouble   AsyncTrouble
	At        int // the task of the trouble, from 1
	Code      int
	Text      string
	BlockAt   int // the task that waits for Let, from 1; 0: the schema; -1: none
}

// Pusher is a producer of an asynchronous stream.
type Pusher struct {
	p      *C.struct_foreign_pusher
	schema *Producer
}

// Start has the producer call the handler.
func (s Push) Start(handler *cdevice.CArrowAsyncDeviceStreamHandler) *Pusher {
	counts := &Producer{}
	counts.c = (*C.struct_foreign_producer)(counts.calloc(C.sizeof_struct_foreign_producer))
	schema := (*C.struct_ArrowSchema)(counts.calloc(C.sizeof_struct_ArrowSchema))
	counts.fillSchema(s.Schema, arrow.Field{}, (*cdata.CArrowSchema)(unsafe.Pointer(schema)))
	list := make([]*C.struct_foreign_producer, len(s.Producers)+1)
	for i, p := range s.Producers {
		list[i] = p.c
	}
	var text *C.char
	if s.Text != "" {
		text = C.CString(s.Text)
		defer C.free(unsafe.Pointer(text))
	}
	p := C.foreign_push((*C.struct_ArrowAsyncDeviceStreamHandler)(unsafe.Pointer(handler)), &list[0], C.int64_t(len(s.Producers)),
		C.int32_t(s.ID.Type), C.int64_t(s.ID.Ordinal), schema, C.int(s.Trouble), C.int64_t(s.At), C.int(s.Code), text, C.int64_t(s.BlockAt))
	if p == nil {
		panic("foreign: no memory, or no thread")
	}
	return &Pusher{p, counts}
}

// Let lets a producer go on that waits.
func (p *Pusher) Let() { C.foreign_pusher_let(p.p) }

// Waiting reports whether it waits.
func (p *Pusher) Waiting() bool { return C.foreign_pusher_waiting(p.p) != 0 }

// Done reports whether it has released the handler, and all that is left.
func (p *Pusher) Done() bool { return C.foreign_pusher_done(p.p) != 0 }

// Again is the number of calls that it must not have had.
func (p *Pusher) Again() int { return int(C.foreign_pusher_again(p.p)) }

// Schemas is the number of schemas that are not released.
func (p *Pusher) Schemas() int { return p.schema.Schemas() }

// Free frees a producer that is Done.
func (p *Pusher) Free() {
	C.foreign_pusher_free(p.p)
	p.schema.Free()
}
