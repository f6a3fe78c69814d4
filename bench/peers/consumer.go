package peers

// #include <stdlib.h>
// #include "consumer.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Consumer is a consumer in C: it calls the callbacks of structs from C, and those of arrays on a thread of its own if
// it has one.
type Consumer struct {
	Arrays []cdevice.CArrowDeviceArray // to be filled; C memory
	c      *C.struct_consumer
}

// NewConsumer returns a consumer with so many arrays. Close it.
func NewConsumer(arrays int, elsewhere bool) (*Consumer, error) {
	thread := C.int(0)
	if elsewhere {
		thread = 1
	}
	c := C.consumer_new(C.int64_t(arrays), thread)
	if c == nil {
		return nil, errMemory
	}
	first := (*cdevice.CArrowDeviceArray)(unsafe.Pointer(c.arrays))
	return &Consumer{unsafe.Slice(first, arrays), c}, nil
}

// Release calls release of the first n arrays, in one call into C.
func (c *Consumer) Release(n int) { C.consumer_release(c.c, C.int64_t(n)) }

// Read reads a stream to its end, and releases it. It returns the number of arrays.
func (c *Consumer) Read(stream *cdata.CArrowArrayStream) (int, error) {
	return read(C.consumer_read(c.c, (*C.struct_ArrowArrayStream)(unsafe.Pointer(stream))))
}

// ReadDevice is Read, of a device stream.
func (c *Consumer) ReadDevice(stream *cdevice.CArrowDeviceArrayStream) (int, error) {
	return read(C.consumer_read_device(c.c, (*C.struct_ArrowDeviceArrayStream)(unsafe.Pointer(stream))))
}

func read(n C.int64_t) (int, error) {
	if n < 0 {
		return 0, errStream
	}
	return int(n), nil
}

var errStream = errors.New("peers: a callback of the stream has failed")

// Close ends the thread. The arrays are released.
func (c *Consumer) Close() { C.consumer_free(c.c) }
