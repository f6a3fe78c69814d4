package bridge

// #include "producer.h"
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// Producer is the Go side of an ArrowAsyncProducer that we export. The struct's
// private_data is the handle of one.
type Producer interface {
	handle.Releaser
	Request(n int64)
	Cancel()
}

// NewProducer makes a struct with the callbacks of p, and a copy of the metadata. It returns nil if
// there is no memory. [EndProducer] ends the struct.
func NewProducer(p Producer, deviceType int32, metadata []byte) *abi.ArrowAsyncProducer {
	if unsafe.Sizeof(abi.ArrowAsyncProducer{})+uintptr(len(metadata)) > limit.Load() {
		return nil
	}
	out := (*abi.ArrowAsyncProducer)(unsafe.Pointer(C.cdevice_v0_producer_new(C.size_t(len(metadata)))))
	if out == nil {
		return nil
	}
	producers.Add(1)
	*out = abi.ArrowAsyncProducer{
		DeviceType:         deviceType,
		Request:            uintptr(C.cdevice_v0_producer_request),
		Cancel:             uintptr(C.cdevice_v0_producer_cancel),
		AdditionalMetadata: out.AdditionalMetadata,
		PrivateData:        uintptr(handle.New(p)),
	}
	if len(metadata) > 0 {
		copy(abi.Slice[byte](out.AdditionalMetadata, len(metadata)), metadata)
	}
	return out
}

// EndProducer ends the struct's handle, and its metadata. A consumer that drains its queue may
// still call request, on a thread of its own: the struct stays readable for the life of the
// process, and its address is never reused, so that such a call does nothing.
//
// A call that has read the handle before it ended, and not yet looked it up, finds that the
// generation has changed. Generations repeat after 2^30 uses of one slot of the table: the thread
// would have to stop between two instructions for minutes in which the process only begins and ends
// streams. The request would then count for the stream that has the handle; freed memory is never
// read.
func EndProducer(p *abi.ArrowAsyncProducer) {
	handle.Take(handle.Word(p.PrivateData))
	producers.Add(-1)
	C.cdevice_v0_producer_end((*C.struct_ArrowAsyncProducer)(unsafe.Pointer(p)))
}

// producers counts the producers that have a handle, not the structs, which stay for ever.
var producers atomic.Int64

// Producers returns the number of producers that have a handle.
func Producers() int64 { return producers.Load() }

// ProducersPerChunk returns the number of producer structs in a chunk of address space.
func ProducersPerChunk() int { return int(C.cdevice_v0_producer_chunk_size()) }

// ProducerChunks returns the number of chunks that have memory of their own, 2 MiB each. Each has a
// live producer, or is the one that the next producers are taken from. On systems that cannot
// replace a mapping, chunks whose producers have all ended count too.
func ProducerChunks() int64 { return int64(C.cdevice_v0_producer_chunks()) }

// DeadProducerChunks returns the number of chunks whose producers have all ended, and which were
// replaced by the mapping of dead producers. They share its memory.
func DeadProducerChunks() int64 { return int64(C.cdevice_v0_producer_dead_chunks()) }

// LimitDeadProducerChunks prevents the replacement of chunks beyond n dead ones, as on a system
// that cannot replace a mapping, until the returned function is called. It is for tests.
func LimitDeadProducerChunks(n int64) (restore func()) {
	before := C.cdevice_v0_producer_limit_dead(C.int64_t(n))
	return func() { C.cdevice_v0_producer_limit_dead(before) }
}

//export cdevice_v0_go_request
func cdevice_v0_go_request(word C.uint64_t, n C.int64_t) {
	ask(word, func(p Producer) int { p.Request(int64(n)); return 0 })
}

//export cdevice_v0_go_cancel
func cdevice_v0_go_cancel(word C.uint64_t) {
	ask(word, func(p Producer) int { p.Cancel(); return 0 })
}
