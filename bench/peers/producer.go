package peers

// #include <stdlib.h>
// #include "consumer.h"
// #include "producer.h"
import "C"

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Producer gives the same batch again and again, at next to no cost: what is measured is the
// import. A batch is to be released before the next one is given.
type Producer struct{ c *C.struct_producer }

// NewProducer takes a struct whose batch it gives. Close it.
func NewProducer(batch *cdevice.CArrowDeviceArray) (*Producer, error) {
	c := C.producer_new((*C.struct_ArrowDeviceArray)(unsafe.Pointer(batch)))
	if c == nil {
		return nil, errMemory
	}
	return &Producer{c}, nil
}

// Give fills *out. This is Go code, so that a side in Go does not pay for a call into C.
func (p *Producer) Give(out *cdevice.CArrowDeviceArray) {
	*out = *(*cdevice.CArrowDeviceArray)(unsafe.Pointer(&p.c.next))
}

// Close releases the producer's batch.
func (p *Producer) Close() { C.producer_free(p.c) }

// Floor exports the batch to a consumer n times, as a C program can at least cost.
func (p *Producer) Floor(to *Consumer, n int) error {
	code := C.floor_run(p.c, &to.c.base, C.int64_t(n))
	C.consumer_flush(to.c)
	if code != 0 {
		return errMemory
	}
	return nil
}

// FloorStream is Floor, through a device stream.
func (p *Producer) FloorStream(to *Consumer, n int) error {
	_, err := read(C.floor_stream(p.c, &to.c.base, C.int64_t(n)))
	return err
}

// ReleaseAll calls the release callbacks of all structs, in one call into C.
func ReleaseAll(all []cdevice.CArrowDeviceArray) {
	C.release_all((*C.struct_ArrowDeviceArray)(unsafe.Pointer(unsafe.SliceData(all))), C.int64_t(len(all)))
}

// Structs returns n structs in C memory, where consumers have them. Free them.
func Structs(n int) []cdevice.CArrowDeviceArray {
	return unsafe.Slice((*cdevice.CArrowDeviceArray)(C.calloc(C.size_t(n), C.sizeof_struct_ArrowDeviceArray)), n)
}

// Free frees structs of Structs.
func Free(all []cdevice.CArrowDeviceArray) { C.free(unsafe.Pointer(unsafe.SliceData(all))) }

// Allocated returns the bytes that malloc has given out.
func Allocated() int64 { return int64(C.allocated()) }
