// Package peers runs other Arrow libraries in this process, for benchmarks beside them: Arrow C++,
// nanoarrow and arrow-rs. Each is a C library of its own, with the entry points of peer.h, which
// build.sh builds and this package loads if it is there. An operation is done n times in one call,
// so that the calls from Go cost the peer nothing.
package peers

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "library.h"
// #include "producer.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Library is a peer.
type Library struct {
	Name, Version string
	c             *C.struct_library
}

// Load loads the library of a peer. It is never unloaded.
func Load(name, path string) (*Library, error) {
	l := &Library{Name: name, c: (*C.struct_library)(C.calloc(1, C.sizeof_struct_library))}
	file := C.CString(path)
	defer C.free(unsafe.Pointer(file))
	if text := C.library_load(file, l.c); text != nil {
		return nil, fmt.Errorf("peers: %s", C.GoString(text))
	}
	l.Version = C.GoString(C.library_version(l.c))
	return l, nil
}

// Operation is an operation of a peer, with data to do it with.
type Operation struct {
	library  *Library
	c        unsafe.Pointer
	consumer *Consumer
}

// Open prepares an operation. It takes the schema and the batch, and borrows the producer and the consumer until
// Close. It returns nil if the peer has no such operation.
func (l *Library) Open(name string, schema *cdata.CArrowSchema, batch *cdevice.CArrowDeviceArray, from *Producer, to *Consumer) (*Operation, error) {
	runtime.LockOSThread() // an error is the thread's
	defer runtime.UnlockOSThread()
	operation := C.CString(name)
	defer C.free(unsafe.Pointer(operation))
	c := C.library_open(l.c, operation, (*C.struct_ArrowSchema)(unsafe.Pointer(schema)), (*C.struct_ArrowDeviceArray)(unsafe.Pointer(batch)),
		&from.c.base, &to.c.base)
	if c != nil {
		return &Operation{l, c, to}, nil
	}
	if text := C.library_error(l.c); text != nil {
		return nil, fmt.Errorf("peers: %s: %s: %s", l.Name, name, C.GoString(text))
	}
	return nil, nil
}

// Run does the operation n times, and has the consumer release what was exported.
func (o *Operation) Run(n int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if text := C.library_run(o.library.c, o.c, o.consumer.c, C.int64_t(n)); text != nil {
		return fmt.Errorf("peers: %s: %s", o.library.Name, C.GoString(text))
	}
	return nil
}

// Close ends the operation.
func (o *Operation) Close() { C.library_close(o.library.c, o.c) }

var errMemory = errors.New("peers: out of memory")
