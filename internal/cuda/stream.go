package cuda

// #include "driver.h"
import "C"

import "time"

// The streams that every context has.
const (
	LegacyStream    uintptr = 1 // CU_STREAM_LEGACY
	PerThreadStream uintptr = 2 // CU_STREAM_PER_THREAD: of the thread that makes the call
)

// NewStream makes a stream that is not ordered with the legacy default stream
// (CU_STREAM_NON_BLOCKING). See [Context.Priorities]; 0 is the usual priority.
func (c *Context) NewStream(priority int) (uintptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_stream_new(c.table, c.word(), C.int(priority))
	return uintptr(r.value), errorOf2(c.Device, r, "CU_STREAM_NON_BLOCKING", priority)
}

// FreeStream ends the stream once its work is done, and does not wait for that.
func (c *Context) FreeStream(stream uintptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_stream_free(c.table, c.word(), C.uintptr_t(stream)), stream)
}

// QueryStream reports whether all work of the stream is done.
func (c *Context) QueryStream(stream uintptr) (bool, error) {
	r := C.cdevice_v0_cuda_stream_query(c.table, c.word(), C.uintptr_t(stream))
	return r.value != 0, errorOf1(c.Device, r, stream)
}

// SynchronizeStream waits for all work of the stream.
func (c *Context) SynchronizeStream(stream uintptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_stream_synchronize(c.table, c.word(), C.uintptr_t(stream)), stream)
}

// WaitEvent makes the stream wait for the latest record of the event.
func (c *Context) WaitEvent(stream, event uintptr) error {
	r := C.cdevice_v0_cuda_stream_wait(c.table, c.word(), C.uintptr_t(stream), C.uintptr_t(event))
	return errorOf2(c.Device, r, stream, event)
}

// NewEvent makes an event without timing, whose waiters sleep.
func (c *Context) NewEvent() (uintptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_event_new(c.table, c.word())
	return uintptr(r.value), errorOf(c.Device, r)
}

// FreeEvent ends the event; waits that have begun go on.
func (c *Context) FreeEvent(event uintptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_event_free(c.table, c.word(), C.uintptr_t(event)), event)
}

// Record makes the event mark the end of the stream's work so far.
func (c *Context) Record(event, stream uintptr) error {
	r := C.cdevice_v0_cuda_event_record(c.table, c.word(), C.uintptr_t(event), C.uintptr_t(stream))
	return errorOf2(c.Device, r, event, stream)
}

// QueryEvent reports whether the latest record is complete.
func (c *Context) QueryEvent(event uintptr) (bool, error) {
	r := C.cdevice_v0_cuda_event_query(c.table, c.word(), C.uintptr_t(event))
	return r.value != 0, errorOf1(c.Device, r, event)
}

// SynchronizeEvent waits for the latest record.
func (c *Context) SynchronizeEvent(event uintptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_event_synchronize(c.table, c.word(), C.uintptr_t(event)), event)
}

// Hold holds the stream back: work enqueued from now on waits until open is called,
// which must be done once, and for the holds of the context that were made before. For tests; it works
// on every driver.
func (c *Context) Hold(stream uintptr) (open func(), err error) {
	alone := C.cdevice_v0_cuda_gates() == 0
	r := C.cdevice_v0_cuda_gate_new(c.table, c.word(), C.uintptr_t(stream))
	if r.code != 0 {
		return nil, c.fail(r, stream)
	}
	// Else the function of the next hold may be called first. It is not called soon if the stream is held back already.
	for began := time.Now(); alone && C.cdevice_v0_cuda_gate_reached(r.value) == 0 && time.Since(began) < time.Second; {
		time.Sleep(50 * time.Microsecond)
	}
	return func() { C.cdevice_v0_cuda_gate_open(r.value) }, nil
}
