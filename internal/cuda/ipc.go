package cuda

// #include "driver.h"
import "C"

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

// Handle is a CUipcMemHandle or a CUipcEventHandle, which another process opens.
type Handle [C.sizeof_struct_cdevice_v0_cuda_handle]byte

func (h *Handle) c() *C.struct_cdevice_v0_cuda_handle {
	return (*C.struct_cdevice_v0_cuda_handle)(unsafe.Pointer(h))
}

// MemoryHandle returns the handle of the allocation of NewMemory, or of another library, that p is in.
func (c *Context) MemoryHandle(p device.Ptr) (h Handle, err error) {
	if r := C.cdevice_v0_cuda_memory_handle(c.table, c.word(), C.uintptr_t(p), h.c()); r.code != 0 {
		return Handle{}, c.fail(r, uintptr(p))
	}
	return h, nil
}

// OpenMemory maps the allocation of another process, to be closed with CloseMemory.
func (c *Context) OpenMemory(h Handle) (device.Ptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_memory_open(c.table, c.word(), h.c())
	return device.Ptr(r.value), errorOf(c.Device, r)
}

// CloseMemory ends one OpenMemory that returned p.
func (c *Context) CloseMemory(p device.Ptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_memory_close(c.table, c.word(), C.uintptr_t(p)), uintptr(p))
}

// NewSharedEvent is NewEvent for an event that other processes can open.
func (c *Context) NewSharedEvent() (uintptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_shared_event_new(c.table, c.word())
	return uintptr(r.value), errorOf(c.Device, r)
}

// EventHandle returns the handle of an event of NewSharedEvent.
func (c *Context) EventHandle(event uintptr) (h Handle, err error) {
	if r := C.cdevice_v0_cuda_event_handle(c.table, c.word(), C.uintptr_t(event), h.c()); r.code != 0 {
		return Handle{}, c.fail(r, event)
	}
	return h, nil
}

// OpenEvent opens the event of another process, to be ended with FreeEvent.
func (c *Context) OpenEvent(h Handle) (uintptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_event_open(c.table, c.word(), h.c())
	return uintptr(r.value), errorOf(c.Device, r)
}
