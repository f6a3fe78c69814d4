package cpeer

// #include <stdlib.h>
// #include "stream.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Stream is a producer of a plain stream: batches with one int64 column and one row, their
// number.
type Stream struct{ p *C.struct_cpeer_stream }

// NewStream returns a producer of n batches. Its get_next fails for batch failAt, unless that
// is negative, with the code and, unless it is empty, the text. Free it.
func NewStream(n, failAt, code int, text string) Stream {
	p := (*C.struct_cpeer_stream)(C.calloc(1, C.sizeof_struct_cpeer_stream))
	p.batches, p.fail_at, p.code = C.int64_t(n), C.int64_t(failAt), C.int(code)
	if text != "" {
		p.text = C.CString(text)
	}
	return Stream{p}
}

// Export fills *out with the stream, once.
func (s Stream) Export(out *abi.ArrowArrayStream) {
	C.cpeer_stream_export(s.p, (*C.struct_ArrowArrayStream)(unsafe.Pointer(out)))
}

// Released is how often the stream was released.
func (s Stream) Released() int { return int(s.p.released) }

// Live is how many of its batches are not fully released.
func (s Stream) Live() int { return int(s.p.live) }

// Free frees the producer; its stream and all arrays are released.
func (s Stream) Free() {
	C.free(unsafe.Pointer(s.p.text))
	C.free(unsafe.Pointer(s.p))
}

// Drained has the results of a consumer in C that drained a stream.
type Drained struct {
	SchemaCode, NextCode int  // of the callback that failed, or 0
	Text                 bool // get_last_error gave a text after it
	Format               bool // the schema is a struct of one int64
	Batches, Sum         int64
}

// Drain reads a stream of batches of one int64 and one row to its end, on a thread that Go
// has never seen. It moves each column out of its batch, and reads it when the batch and the
// stream were released.
func Drain(stream *abi.ArrowArrayStream) Drained {
	var d C.struct_cpeer_drained
	if errno := C.cpeer_stream_drain((*C.struct_ArrowArrayStream)(unsafe.Pointer(stream)), &d); errno != 0 {
		panic(fmt.Sprintf("cpeer: start a thread: %v", syscall.Errno(errno)))
	}
	return drained(&d)
}

// DrainHere is [Drain] on this thread.
func DrainHere(stream *abi.ArrowArrayStream) Drained {
	var d C.struct_cpeer_drained
	C.cpeer_stream_drain_here((*C.struct_ArrowArrayStream)(unsafe.Pointer(stream)), &d)
	return drained(&d)
}

func drained(d *C.struct_cpeer_drained) Drained {
	return Drained{int(d.schema_code), int(d.next_code), d.text != 0, d.format != 0, int64(d.batches), int64(d.sum)}
}
