// Package probe counts what a path of the library does, and has the C code at the other end of it.
package probe

// #include <stdlib.h>
// #include "window.h"
// #include "peer.h"
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// Counts is what code of this process has done since its start.
type Counts struct {
	GoAllocs, GoBytes int64
	Mallocs           int64 // of C, by the program's own code
	IntoC, IntoGo     int64 // calls
}

// Count runs do between the marks at which callgrind counts, and returns what it has added.
func Count(do func()) Counts {
	before := read()
	crossed := runtime.NumCgoCall()
	C.window_begin()
	do()
	C.window_end()
	crossed = runtime.NumCgoCall() - crossed - marks
	c := read()
	return Counts{
		c.GoAllocs - before.GoAllocs, c.GoBytes - before.GoBytes, c.Mallocs - before.Mallocs, crossed, c.IntoGo - before.IntoGo,
	}
}

// marks is how many calls of C Count itself makes.
const marks = 2

func read() (c Counts) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Counts{int64(m.Mallocs), int64(m.TotalAlloc), int64(C.window_mallocs()), 0, bridge.Callbacks()}
}

func word[T any](p *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(p))) }

// New returns a struct in memory of C, where consumers have theirs. It is never freed.
func New[T any]() *T { return (*T)(C.calloc(1, C.size_t(unsafe.Sizeof(*new(T))))) }

// Release has C release an array, on this thread.
func Release[S cdevice.ArrayStruct](array *S) { C.peer_release(word(array)) }

// ReleaseSchema has C release a schema.
func ReleaseSchema(schema *cdata.CArrowSchema) { C.peer_release_schema(word(schema)) }

// Read has C read a stream to its end, and release it. It returns the number of arrays, or -1.
func Read(stream *cdevice.CArrowDeviceArrayStream) int { return int(C.peer_read(word(stream))) }

// ReadPlain is Read of a stream of the C stream interface.
func ReadPlain(stream *cdata.CArrowArrayStream) int { return int(C.peer_read_plain(word(stream))) }

// Lend makes an exported struct one of a producer in C, which lends the same memory any number of times: a copy of the
// struct is released by a function of C that only marks it.
func Lend(array *cdevice.CArrowDeviceArray) { C.peer_lend(word(array)) }

// Stream fills *out with a stream of C that gives n copies of an array of Lend. It takes the schema.
func Stream(array *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema, n int, out *cdevice.CArrowDeviceArrayStream) {
	if C.peer_stream(word(array), word(schema), C.int64_t(n), word(out)) != 0 {
		panic("probe: no memory")
	}
}
