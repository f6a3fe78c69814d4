package cuda

// #cgo noescape cdevice_v0_cuda_capturing
// #cgo nocallback cdevice_v0_cuda_capturing
// #include "driver.h"
import "C"

import "unsafe"

// Capturing reports whether a capture is visible that waiting for the context would
// invalidate: one of any blocking stream of the context, or one of the
// streams in the list, which live. Captures of other non-blocking streams cannot be
// seen. Without captures in the driver there are none.
func (c *Context) Capturing(streams []uintptr) (bool, error) {
	list := (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(streams)))
	r := C.cdevice_v0_cuda_capturing(c.table, c.word(), list, C.size_t(len(streams)))
	return r.value != 0, errorOf(c.Device, r)
}

// Modes of [Context.BeginCapture].
const (
	CaptureGlobal      = 0
	CaptureThreadLocal = 1
	CaptureRelaxed     = 2
)

// BeginCapture begins a capture of the stream, for tests. Unless it is relaxed, the
// thread that begins a capture ends it.
func (c *Context) BeginCapture(stream uintptr, mode int) error {
	r := C.cdevice_v0_cuda_capture_begin(c.table, c.word(), C.uintptr_t(stream), C.int(mode))
	return errorOf2(c.Device, r, stream, mode)
}

// EndCapture ends the capture that began in the stream, and discards its graph. The error is that
// of a capture that was invalidated.
func (c *Context) EndCapture(stream uintptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_capture_end(c.table, c.word(), C.uintptr_t(stream)), stream)
}

// CaptureMode is the capture mode of the calling thread. For tests.
func (d *Driver) CaptureMode() (int, error) {
	r := C.cdevice_v0_cuda_capture_mode(d.table)
	if r.code != 0 {
		return 0, d.fail("", r)
	}
	return int(r.value), nil
}

// NewBlockingStream makes a stream that is ordered with the legacy default stream. For
// tests.
func (c *Context) NewBlockingStream() (uintptr, error) {
	r := C.cdevice_v0_cuda_stream_blocking(c.table, c.word())
	return uintptr(r.value), errorOf(c.Device, r)
}

// ResetPrimary destroys everything in the device's primary context, of this library and
// of others. References to the context survive. For tests.
func (d *Device) ResetPrimary() error {
	return errorOf(d, C.cdevice_v0_cuda_context_reset(d.driver.table, d.handle))
}
