package peers

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

// Floor exports and releases the batch n times, as a C program can at least cost.
func (p *Producer) Floor(n int) error {
	if C.floor_run(p.c, C.int64_t(n)) != 0 {
		return errMemory
	}
	return nil
}

// Block allocates and frees n times the memory that one export of the batch needs.
func (p *Producer) Block(n int) { C.block_run(p.c, C.int64_t(n)) }

// ReleaseAll calls the release callbacks of all structs, in one call into C.
func ReleaseAll(all []cdevice.CArrowDeviceArray) {
	C.release_all((*C.struct_ArrowDeviceArray)(unsafe.Pointer(unsafe.SliceData(all))), C.int64_t(len(all)))
}

// Crossings calls into C n times.
func Crossings(n int) {
	for range n {
		C.nothing()
	}
}
