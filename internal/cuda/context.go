package cuda

// #cgo noescape cdevice_v0_cuda_copy
// #cgo nocallback cdevice_v0_cuda_copy
// #cgo noescape cdevice_v0_cuda_copy_peer
// #cgo nocallback cdevice_v0_cuda_copy_peer
// #cgo noescape cdevice_v0_cuda_find_ends
// #cgo nocallback cdevice_v0_cuda_find_ends
// #cgo noescape cdevice_v0_cuda_memory_info
// #cgo nocallback cdevice_v0_cuda_memory_info
// #cgo noescape cdevice_v0_cuda_pointer_query
// #cgo nocallback cdevice_v0_cuda_pointer_query
// #include "driver.h"
import "C"

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

// Context is the primary context of a device, retained. Handles of streams and
// events are CUstream and CUevent; the stream 0 is the legacy default stream.
type Context struct {
	*Device
	table  C.cdevice_v0_cuda_table
	handle C.uintptr_t
	id     uint64 // 0: the driver has no ids
	gone   atomic.Bool
}

// Context retains the primary context of the device. Release it.
func (d *Device) Context() (*Context, error) {
	r := C.cdevice_v0_cuda_context_retain(d.driver.table, d.handle)
	if r.code != 0 {
		return nil, d.fail(r)
	}
	c := &Context{Device: d, table: d.driver.table, handle: C.uintptr_t(r.value)}
	if r = C.cdevice_v0_cuda_context_id(c.table, c.handle); r.code != 0 {
		err := d.fail(r)
		if c.Release() != nil {
			err = errors.Join(err, c.Release()) // a driver that fails once must not keep a context alive
		}
		return nil, err
	}
	c.id = uint64(r.value)
	return c, nil
}

// Release gives the reference to the primary context back, even if the context was reset.
func (c *Context) Release() error {
	return errorOf(c.Device, C.cdevice_v0_cuda_context_release(c.table, c.Device.handle))
}

// Gone reports whether the context was reset (cuDevicePrimaryCtxReset), by asking the
// driver, unless that is known. From then on each call fails with [ContextIsDestroyed] and does
// not reach the driver: the primary context may be active again with the same handle,
// and addresses and handles of this context may be those of other things in the new one.
// stream was made in the context; the drivers of CUDA 11 are asked about it. With a driver that was shut
// down, every context is gone.
func (c *Context) Gone(stream uintptr) (bool, error) {
	if c.gone.Load() {
		return true, nil
	}
	r := C.cdevice_v0_cuda_context_lives(c.table, c.Device.handle, c.handle, C.uint64_t(c.id), C.uintptr_t(stream))
	if Code(r.code) == Deinitialized { // so are all contexts; calls go on to say why
		return true, nil
	}
	if r.code != 0 {
		return false, c.fail(r)
	}
	if r.value == 0 {
		c.gone.Store(true)
	}
	return r.value == 0, nil
}

// Err returns an error once the context is known to be gone, for methods that make no call of the
// driver.
func (c *Context) Err() error {
	if !c.gone.Load() {
		return nil
	}
	return c.fail(result{code: C.int32_t(ContextIsDestroyed), call: C.cdevice_v0_cuda_call_cuCtxSetCurrent})
}

// word is the CUcontext for calls; 0, which C refuses, if the context is known to be gone.
func (c *Context) word() C.uintptr_t {
	if c.gone.Load() {
		return 0
	}
	return c.handle
}

// Handle returns the CUcontext.
func (c *Context) Handle() uintptr { return uintptr(c.handle) }

// Current returns the CUcontext that is current on the calling thread, 0 if none is. For tests.
func (d *Driver) Current() uintptr { return uintptr(C.cdevice_v0_cuda_current(d.table)) }

// Synchronize waits for all work of the context, including that of other libraries.
func (c *Context) Synchronize() error {
	return errorOf(c.Device, C.cdevice_v0_cuda_context_synchronize(c.table, c.word()))
}

// EnableAccess lets work of c read and write memory of peer's context, except memory of peer's
// pools; see [Context.PoolAccess]. Enabling twice is allowed.
func (c *Context) EnableAccess(peer *Context) error {
	r := C.cdevice_v0_cuda_context_access(c.table, c.word(), peer.word())
	if r.code != 0 && Code(r.code) != PeerAccessAlreadyEnabled {
		return c.fail(r, peer.String())
	}
	return nil
}

// Priorities are the least and the greatest priority of streams; greater ones are
// smaller numbers.
func (c *Context) Priorities() (least, greatest int, err error) {
	var l, g C.int
	if r := C.cdevice_v0_cuda_context_priorities(c.table, c.word(), &l, &g); r.code != 0 {
		return 0, 0, c.fail(r)
	}
	return int(l), int(g), nil
}

// MemoryInfo returns the free and the total memory of the device, in bytes.
func (c *Context) MemoryInfo() (free, total int64, err error) {
	var all C.uint64_t
	r := C.cdevice_v0_cuda_memory_info(c.table, c.word(), &all)
	if r.code != 0 {
		return 0, 0, c.fail(r)
	}
	return int64(r.value), int64(all), nil
}

// Copy enqueues all ranges on the stream, in one crossing into C. The device of the
// stream must reach their memory; see [Context.CopyPeer].
func (c *Context) Copy(ranges []device.Range, stream uintptr) error {
	if len(ranges) == 0 {
		return nil
	}
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_copy(c.table, c.word(), rangesOf(ranges), C.size_t(len(ranges)), C.uintptr_t(stream))
	return c.failAt(r, ranges)
}

// CopyNow copies between any memory as cuMemcpy does, which knows no stream, and waits.
func (c *Context) CopyNow(dst, src device.Ptr, size int64) error {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_copy_now(c.table, c.word(), C.uintptr_t(dst), C.uintptr_t(src), C.size_t(size))
	return errorOf3(c.Device, r, uintptr(dst), uintptr(src), size)
}

// CopyPeer is Copy of ranges that go from device memory of one context to that of
// another, neither of which c need reach.
func (c *Context) CopyPeer(to, from *Context, ranges []device.Range, stream uintptr) error {
	if len(ranges) == 0 {
		return nil
	}
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_copy_peer(c.table, c.word(), to.word(), from.word(), rangesOf(ranges), C.size_t(len(ranges)), C.uintptr_t(stream))
	return c.failAt(r, ranges)
}

// Ends are the devices whose memory the ends of a range are; [HostEnd] for managed
// memory and all memory of the host.
type Ends struct{ Dst, Src int32 }

// HostEnd is an end that is not a device's own memory.
const HostEnd = C.CDEVICE_V0_CUDA_HOST_END

// FindEnds asks the driver about the ends of all ranges: once per allocation, where
// neighbours in the list are of the same one.
func (c *Context) FindEnds(ranges []device.Range) ([]Ends, error) {
	if len(ranges) == 0 {
		return nil, nil
	}
	ends := make([]Ends, len(ranges))
	out := (*C.cdevice_v0_cuda_ends)(unsafe.Pointer(unsafe.SliceData(ends)))
	r := C.cdevice_v0_cuda_find_ends(c.table, c.word(), rangesOf(ranges), C.size_t(len(ranges)), out)
	return ends, c.failAt(r, ranges)
}

// rangesOf is the list in C: device.Range has no Go pointers, and the layout of
// cdevice_v0_cuda_range.
func rangesOf(ranges []device.Range) *C.cdevice_v0_cuda_range {
	return (*C.cdevice_v0_cuda_range)(unsafe.Pointer(unsafe.SliceData(ranges)))
}

// failAt makes the error of a call for the range whose index is the result's value.
func (c *Context) failAt(r result, ranges []device.Range) error {
	if r.code == 0 {
		return nil
	}
	failed := ranges[r.value]
	return c.fail(r, uintptr(failed.Dst), uintptr(failed.Src), failed.Size)
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(device.Range{})-C.sizeof_cdevice_v0_cuda_range]
	_ = [1]struct{}{}[unsafe.Offsetof(device.Range{}.Src)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(device.Range{}.Size)-16]
	_ = [1]struct{}{}[unsafe.Sizeof(Ends{})-C.sizeof_cdevice_v0_cuda_ends]
)

// Memset enqueues the filling of size bytes at p.
func (c *Context) Memset(p device.Ptr, value byte, size int64, stream uintptr) error {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_memset(c.table, c.word(), C.uintptr_t(p), C.uchar(value), C.size_t(size), C.uintptr_t(stream))
	return errorOf3(c.Device, r, uintptr(p), value, size)
}

// Memory types of a [Pointer].
const (
	HostMemory   = 1 // page-locked, known to the driver
	DeviceMemory = 2
)

// Pointer is the driver's information about an address. Memory is 0 for one that it does not know:
// plain host memory, or memory that was freed.
type Pointer struct {
	Memory      int
	Managed     bool
	Ordinal     int
	Start, Size uint64 // of the allocation that the address is in
}

// Query asks the driver about an address.
func (c *Context) Query(p device.Ptr) (Pointer, error) {
	var out C.cdevice_v0_cuda_pointer
	r := C.cdevice_v0_cuda_pointer_query(c.table, c.word(), C.uintptr_t(p), &out)
	if r.code != 0 {
		return Pointer{}, c.fail(r, uintptr(p))
	}
	return Pointer{int(out.memory), out.managed != 0, int(out.ordinal), uint64(out.start), uint64(out.size)}, nil
}
