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

// Stream is a producer of a stream: the arrays of several producers, one after the other.
type Stream struct {
	c         *C.struct_foreign_stream
	producers []*Producer
	schema    *Producer // counts the schema
	owned     []unsafe.Pointer
}

// Trouble is a failure of a stream. The zero value is a stream that ends well.
type Trouble struct {
	Schema  int    // errno of get_schema, unless 0
	FailAt  int    // the call of get_next, from 1, that returns Code; 0: none
	Code    int    // an errno
	Text    string // of get_last_error, unless empty
	BlockAt int    // the call of get_next, from 1, that waits for Let; 0: none
}

// NewStream returns a stream of batches, if s is not nil, or of arrays of the field. It owns the structs of the producers from then
// on. Free it, and then them.
func NewStream(s *arrow.Schema, field arrow.Field, id device.ID, producers []*Producer, trouble Trouble) (*Stream, error) {
	counts := &Producer{}
	counts.c = (*C.struct_foreign_producer)(counts.calloc(C.sizeof_struct_foreign_producer))
	f := &Stream{producers: producers, schema: counts}
	f.c = (*C.struct_foreign_stream)(f.calloc(C.sizeof_struct_foreign_stream))
	f.c.count = C.int64_t(len(producers))
	f.c.producers = (**C.struct_foreign_producer)(f.calloc(C.size_t(len(producers)) * 8))
	for i, p := range producers {
		unsafe.Slice(f.c.producers, len(producers))[i] = p.c
	}
	f.c.device_type, f.c.device_id = C.int32_t(id.Type), C.int64_t(id.Ordinal)
	f.c.fail_at, f.c.code, f.c.block_at = C.int64_t(trouble.FailAt-1), C.int(trouble.Code), C.int64_t(trouble.BlockAt-1)
	f.c.schema_code = C.int(trouble.Schema)
	if trouble.Text != "" {
		f.c.text = C.CString(trouble.Text)
		f.owned = append(f.owned, unsafe.Pointer(f.c.text))
	}
	counts.fillSchema(s, field, (*cdata.CArrowSchema)(unsafe.Pointer(&f.c.schema)))
	return f, nil
}

func (f *Stream) calloc(size C.size_t) unsafe.Pointer {
	m := C.calloc(1, max(size, 1))
	f.owned = append(f.owned, m)
	return m
}

// Device fills a new struct in C memory, once.
func (f *Stream) Device() *cdevice.CArrowDeviceArrayStream {
	out := (*C.struct_ArrowDeviceArrayStream)(f.calloc(C.sizeof_struct_ArrowDeviceArrayStream))
	C.foreign_stream_give(f.c, out)
	return (*cdevice.CArrowDeviceArrayStream)(unsafe.Pointer(out))
}

// Plain is [Stream.Device] for an ArrowArrayStream.
func (f *Stream) Plain() *cdata.CArrowArrayStream {
	out := (*C.struct_ArrowArrayStream)(f.calloc(C.sizeof_struct_ArrowArrayStream))
	C.foreign_stream_give_plain(f.c, out)
	return (*cdata.CArrowArrayStream)(unsafe.Pointer(out))
}

// Let lets a call of get_next that waits go on.
func (f *Stream) Let() { C.foreign_stream_let(f.c) }

// Waiting reports whether get_next waits.
func (f *Stream) Waiting() bool { return C.foreign_load(&f.c.waiting) != 0 }

// Released is the number of releases of the stream.
func (f *Stream) Released() int { return int(C.foreign_load(&f.c.released)) }

// Again is the number of calls after the release.
func (f *Stream) Again() int { return int(C.foreign_load(&f.c.again)) }

// Schemas is the number of schemas that are not released.
func (f *Stream) Schemas() int { return f.schema.Schemas() }

// Free frees the stream, which was released or never given away.
func (f *Stream) Free() {
	f.schema.Free()
	for _, m := range f.owned {
		C.free(m)
	}
}

// NewDeviceStream returns a struct in C memory, filled with garbage; [Forget] frees it.
func NewDeviceStream() *cdevice.CArrowDeviceArrayStream {
	return (*cdevice.CArrowDeviceArrayStream)(garbage(C.sizeof_struct_ArrowDeviceArrayStream))
}

// NewPlainStream is NewDeviceStream for an ArrowArrayStream.
func NewPlainStream() *cdata.CArrowArrayStream {
	return (*cdata.CArrowArrayStream)(garbage(C.sizeof_struct_ArrowArrayStream))
}

// Answer is the result of a callback of a stream.
type Answer struct {
	Code int    // an errno, or 0
	Text string // of get_last_error
}

func answer(code C.int, text *C.char) Answer {
	defer C.free(unsafe.Pointer(text))
	return Answer{int(code), C.GoString(text)}
}

func flag(thread bool) C.int {
	if thread {
		return 1
	}
	return 0
}

// GetSchema calls get_schema, on a thread that Go has never seen if thread is set.
func GetSchema(s *cdevice.CArrowDeviceArrayStream, out *cdata.CArrowSchema, thread bool) Answer {
	var text *C.char
	return answer(C.foreign_get_schema((*C.struct_ArrowDeviceArrayStream)(unsafe.Pointer(s)), (*C.struct_ArrowSchema)(unsafe.Pointer(out)), flag(thread), &text), text)
}

// GetSchemaPlain is GetSchema of an ArrowArrayStream.
func GetSchemaPlain(s *cdata.CArrowArrayStream, out *cdata.CArrowSchema, thread bool) Answer {
	var text *C.char
	return answer(C.foreign_get_schema_plain((*C.struct_ArrowArrayStream)(unsafe.Pointer(s)), (*C.struct_ArrowSchema)(unsafe.Pointer(out)), flag(thread), &text), text)
}

// GetNext calls get_next.
func GetNext(s *cdevice.CArrowDeviceArrayStream, out *cdevice.CArrowDeviceArray, thread bool) Answer {
	var text *C.char
	return answer(C.foreign_get_next((*C.struct_ArrowDeviceArrayStream)(unsafe.Pointer(s)), (*C.struct_ArrowDeviceArray)(unsafe.Pointer(out)), flag(thread), &text), text)
}

// GetNextPlain is GetNext of an ArrowArrayStream.
func GetNextPlain(s *cdata.CArrowArrayStream, out *cdata.CArrowArray, thread bool) Answer {
	var text *C.char
	return answer(C.foreign_get_next_plain((*C.struct_ArrowArrayStream)(unsafe.Pointer(s)), (*C.struct_ArrowArray)(unsafe.Pointer(out)), flag(thread), &text), text)
}

// ReleaseStream calls release.
func ReleaseStream(s *cdevice.CArrowDeviceArrayStream, thread bool) {
	C.foreign_release_stream((*C.struct_ArrowDeviceArrayStream)(unsafe.Pointer(s)), flag(thread))
}

// ReleasePlainStream is ReleaseStream of an ArrowArrayStream.
func ReleasePlainStream(s *cdata.CArrowArrayStream, thread bool) {
	C.foreign_release_stream_plain((*C.struct_ArrowArrayStream)(unsafe.Pointer(s)), flag(thread))
}
