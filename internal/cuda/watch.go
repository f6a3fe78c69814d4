package cuda

// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/callsite"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// A simulated driver reports work of the program that is not ordered. What this library asks the driver for its
// own ends, at times of its own, must not count as an order of the program's work. So it tells such a
// driver which calls are its own, and about which memory they are, by a key: the address of memory that its user
// has given back, or any other number that is not zero.

// Watched reports whether the driver is a simulated one that wants to be told.
func (c *Context) Watched() bool { return c.table.cudasim_keep != nil }

// Driver returns the driver.
func (c *Context) Driver() *Driver { return c.driver }

// GiveBack tells a simulated driver that memory was given back: that its user knows now, of the work that
// uses it, what the program knows.
func (c *Context) GiveBack(key keep.Key) {
	if c.Watched() {
		c.driver.GiveBack(key)
	}
}

// Cover tells it that all work of the context so far will be waited for, for the key.
func (c *Context) Cover(key keep.Key) {
	if c.Watched() {
		C.cdevice_v0_cuda_cover(c.table, C.uintptr_t(key), c.word())
	}
}

// Keep tells it that the memory is kept for its next user; size 0: a stream, an event, a pool.
func (c *Context) Keep(what device.Ptr, size int64) {
	if c.Watched() {
		defer c.tellCaller()()
		C.cdevice_v0_cuda_keep(c.table, C.uintptr_t(what), C.size_t(size))
	}
}

// HandOut tells it that there is a next user.
func (c *Context) HandOut(what device.Ptr, size int64) {
	if c.Watched() {
		defer c.tellCaller()()
		C.cdevice_v0_cuda_hand_out(c.table, C.uintptr_t(what), C.size_t(size))
	}
}

// FreeLater tells it that the allocation at p has no user any more, though it will be freed, unregistered or closed later.
func (c *Context) FreeLater(p device.Ptr) {
	if c.Watched() && !c.gone.Load() { // otherwise it may be another one
		defer c.tellCaller()()
		C.cdevice_v0_cuda_free_later(c.table, C.uintptr_t(p))
	}
}

// Act implements keep.Driver.
func (d *Driver) Act(key keep.Key) keep.Key {
	return keep.Key(C.cdevice_v0_cuda_act(d.table, C.uintptr_t(key)))
}

// GiveBack implements keep.Driver.
func (d *Driver) GiveBack(key keep.Key) {
	defer d.tellCaller()()
	C.cdevice_v0_cuda_give_back(d.table, C.uintptr_t(key))
}

// Forget implements keep.Driver.
func (d *Driver) Forget(key keep.Key) { C.cdevice_v0_cuda_forget(d.table, C.uintptr_t(key)) }

// Read implements keep.Driver.
func (d *Driver) Read(key keep.Key, ranges []device.Range) {
	for _, r := range ranges {
		C.cdevice_v0_cuda_read(d.table, C.uintptr_t(r.Src), C.size_t(r.Size), C.uintptr_t(key))
	}
}

// Publish implements keep.Driver.
func (d *Driver) Publish(key keep.Key) { C.cdevice_v0_cuda_publish(d.table, C.uintptr_t(key)) }

// QueryEventFor is [Context.QueryEvent] for the library itself. A key of 0 is none.
func (c *Context) QueryEventFor(event uintptr, key keep.Key) (bool, error) {
	r := C.cdevice_v0_cuda_event_query_for(c.table, c.word(), C.uintptr_t(event), C.uintptr_t(key))
	return r.value != 0, errorOf1(c.Device, r, event)
}

// QueryStreamFor is [Context.QueryStream] for the library itself. A key of 0 is none.
func (c *Context) QueryStreamFor(stream uintptr, key keep.Key) (bool, error) {
	r := C.cdevice_v0_cuda_stream_query_for(c.table, c.word(), C.uintptr_t(stream), C.uintptr_t(key))
	return r.value != 0, errorOf1(c.Device, r, stream)
}

// SynchronizeFor is [Context.Synchronize] for the library itself, unless [Context.Capturing], and reports whether
// it has synchronised. The streams may end when asked is 1. A capture that begins between the query
// and the synchronisation, which follow each other immediately, is invalidated all the same.
func (c *Context) SynchronizeFor(streams []uintptr, asked *atomic.Int32, keys []keep.Key) (done bool, err error) {
	list := (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(streams)))
	all := (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(keys)))
	r := C.cdevice_v0_cuda_context_synchronize_for(c.table, c.word(), list, C.size_t(len(streams)),
		(*C.int32_t)(unsafe.Pointer(asked)), all, C.size_t(len(keys)))
	if r.code != 0 {
		return true, c.fail(r)
	}
	return r.value == 0, nil
}

// FreePoolMemoryFor is [Context.FreePoolMemory] for the library itself, of memory that was given back.
func (c *Context) FreePoolMemoryFor(p device.Ptr, stream uintptr) error {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_pool_memory_free_for(c.table, c.word(), C.uintptr_t(p), C.uintptr_t(stream))
	return errorOf1(c.Device, r, uintptr(p))
}

// ---- callers ----

func nothing() {}

// tellCaller tells a simulated driver that asks for it who makes the next call. The function that it returns
// is called after that.
func (c *Context) tellCaller() func() { return c.driver.tellCaller() }

func (d *Driver) tellCaller() func() {
	if !d.told {
		return nothing
	}
	runtime.LockOSThread() // the driver keeps the text for the thread
	text := C.CString(caller())
	C.cdevice_v0_cuda_caller(d.table, text)
	C.free(unsafe.Pointer(text))
	return func() {
		C.cdevice_v0_cuda_caller(d.table, nil)
		runtime.UnlockOSThread()
	}
}

// caller describes the call of this module that the goroutine is in.
func caller() string {
	var pcs [64]uintptr
	return callsite.Of(runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])]).Next)
}
