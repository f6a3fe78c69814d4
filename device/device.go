// Package device defines device identifiers, memory, streams and events, and the
// registry of device backends. It uses neither CUDA nor cgo: a backend imports this
// package and calls [Register].
//
// [CPUDevice] is the CPU, the reference implementation of [Device]. Package devicetest
// tests that a backend keeps what the interfaces promise.
package device

import (
	"context"
	"errors"
	"fmt"
)

// Type is a kind of device memory. The values are those of
// ArrowDeviceType in the C device data interface, which equal DLPack's. A value
// that is not listed here is passed on unchanged.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#arrowdevicetype
type Type int32

const (
	CPU         Type = 1  // plain host memory
	CUDA        Type = 2  // device memory of an NVIDIA GPU
	CUDAHost    Type = 3  // host memory that CUDA page-locked
	OpenCL      Type = 4  // OpenCL device memory
	Vulkan      Type = 7  // a Vulkan buffer
	Metal       Type = 8  // Metal on Apple GPUs
	VPI         Type = 9  // a Verilog simulator buffer
	ROCM        Type = 10 // device memory of an AMD GPU
	ROCMHost    Type = 11 // host memory that ROCm page-locked
	ExtDev      Type = 12 // reserved for experiments: producer and consumer agree on the meaning
	CUDAManaged Type = 13 // CUDA managed (unified) memory
	OneAPI      Type = 14 // unified shared memory of oneAPI
	WebGPU      Type = 15 // WebGPU
	Hexagon     Type = 16 // Qualcomm Hexagon DSP
)

var typeNames = map[Type]string{
	CPU: "cpu", CUDA: "cuda", CUDAHost: "cuda_host", OpenCL: "opencl", Vulkan: "vulkan",
	Metal: "metal", VPI: "vpi", ROCM: "rocm", ROCMHost: "rocm_host", ExtDev: "ext_dev",
	CUDAManaged: "cuda_managed", OneAPI: "oneapi", WebGPU: "webgpu", Hexagon: "hexagon",
}

// String returns the name in the specification in lower case, without the
// ARROW_DEVICE_ prefix: "cuda_host". For a type that the specification does not
// list it returns "device_type(17)".
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("device_type(%d)", int32(t))
}

// CPUAccessible reports whether the CPU can read memory of this type at its address, once its
// event is complete. For CUDAManaged it reports true, although on some machines the CPU may
// touch such memory only while the GPU is idle: [Device.CPUAccessible] is exact.
func (t Type) CPUAccessible() bool {
	switch t {
	case CPU, CUDAHost, ROCMHost, CUDAManaged:
		return true
	}
	return false
}

// NoOrdinal is the ordinal of the CPU, and of other types whose devices have no number.
const NoOrdinal = -1

// ID names one device of the machine, and one kind of memory of it.
type ID struct {
	Type    Type  // ArrowDeviceArray.device_type
	Ordinal int64 // ArrowDeviceArray.device_id: NoOrdinal for the CPU, the driver's ordinal for CUDA
}

// String returns "cpu" or "cuda:0".
func (id ID) String() string {
	if id.Ordinal == NoOrdinal {
		return id.Type.String()
	}
	return fmt.Sprintf("%s:%d", id.Type, id.Ordinal)
}

// Ptr is an address in a device's memory. Go code reads through it only where
// the device is CPU-accessible.
//
// Memory of Go whose address is a Ptr is pinned ([runtime.Pinner]) as long as the address is used: as a number it
// keeps nothing alive, and the elements of a local slice may be on the stack of the goroutine, which moves.
type Ptr uintptr

// Range is one piece of a copy: Size bytes from Src to Dst.
type Range struct {
	Dst, Src Ptr
	Size     int64
}

// ErrNotSupported is wrapped by errors about operations that this machine, driver, device
// or build does not have: trying again does not help.
var ErrNotSupported = errors.New("not supported")

// Device is one device of this process: its memory, streams and events. It is small, so that
// a backend is quick to write; what a backend can do beyond it is in optional interfaces:
//
//	[Stager]        page-locked host memory, and copies from host memory that need not be kept
//	[Memsetter]     fills memory
//	[CopyStreamer]  keeps streams for copies
//	[Prober]        knows what memory is at an address
//	[Coherent]      may access all memory of the CPU
//	[WaitCounter]   limits the memory that waits to be freed
//	[MemoryKinds]   has several kinds of memory
//	[Sharer]        has memory and events that other processes can open
//	[HostRegistrar] page-locks host memory that something else has allocated
//	[Waiter]        of a [Stream]: calls a function after its work
//
// Package cdevice works without them: it copies, more slowly, and cannot validate memory
// that the CPU does not reach. A Device that wraps another one has the optional interfaces of
// the other one only if it embeds the concrete type or forwards their methods.
//
// The methods may be called from any goroutine at any time. A nil Stream argument means the
// device's default stream. Work on a stream is done in the order in which it was enqueued, and
// may complete after the call that enqueued it has returned. Any other nil argument, a nil
// context above all, is an error that names it. So is a stream or an event of another device on which this one
// cannot work; the error names both devices.
type Device interface {
	// ID returns the type and the ordinal that exported arrays carry.
	ID() ID
	// Name returns a name for people: "NVIDIA H200", "cpu".
	Name() string
	// CPUAccessible reports whether the CPU may read memory of this device at its
	// address, once the work that fills it has completed and while other work goes on. Managed
	// memory (CUDAManaged) is not CPU-accessible on machines where the CPU may touch it only
	// while the GPU is idle.
	CPUAccessible() bool

	// Allocate returns owned memory of size bytes, aligned to at least 64 bytes,
	// with undefined contents. Work that is enqueued on s from now on may use it.
	// A size of zero is allowed, a negative one is an error. Where no memory is left,
	// Allocate waits for memory that was freed and that pending work may still use; ctx ends
	// that wait with an error.
	Allocate(ctx context.Context, size int64, s Stream) (Memory, error)
	// Copy enqueues all ranges on s. Sources and destinations may be memory of this device
	// or host memory. Sources may also be memory of other devices of the same type, as far
	// as the backend has several: package cdevice copies from one GPU to another in this way,
	// and goes over the CPU only between devices of different types. The ranges of one call
	// must not overlap. The memory must stay where it is until the copies have completed:
	// memory of Go is pinned.
	Copy(ranges []Range, s Stream) error

	// AfterWork calls f after all work already enqueued on any stream of this device,
	// including streams of other libraries, has completed, and that of other open devices that
	// may access memory of this one. It does not wait: f is called later on another
	// goroutine, or on this one where no work can be pending, as on the CPU. Memory that
	// work on unknown streams may use is freed in this way; [Event.OnComplete] waits only for
	// the work before one event. f may block: neither frees nor other functions wait for it. A
	// panic of f on another goroutine does not end the process. A nil f panics at once.
	AfterWork(f func())

	// NewStream returns an owned stream; the caller closes it.
	NewStream() (Stream, error)
	// WrapStream borrows a stream of another library by its native handle. 0 is the default stream,
	// which can be used as any other.
	WrapStream(handle uintptr) (Stream, error)
	// NewEvent returns an owned event that was never recorded; the caller closes it.
	NewEvent() (Event, error)
	// WrapEvent borrows an event of another library by its native handle: of an imported
	// array, the value that ArrowDeviceArray.sync_event points to.
	WrapEvent(handle uintptr) (Event, error)
}

// Stager is an optional interface of a [Device] that copies from and to page-locked host
// memory directly, and from other host memory through page-locked memory of its own. For a
// device without it, package cdevice keeps a copy of the host memory until the device has read it.
type Stager interface {
	// AllocateHost returns owned page-locked host memory, which this device reads and writes
	// directly, at full speed and asynchronously. It may be cached. It waits
	// as [Device.Allocate] does.
	AllocateHost(ctx context.Context, size int64) (Memory, error)
	// Upload is [Device.Copy] from host memory. Memory that is not page-locked is read before
	// Upload returns, and neither pinned nor kept after that; page-locked memory (see
	// PageLocked) may be read later. Ranges whose destinations are neighbours cost one copy.
	// The caller owns the event, which is complete after all work enqueued on s so far; it
	// must not be recorded again. ctx ends a wait for staging memory. After an error,
	// some of the copies may be enqueued.
	Upload(ctx context.Context, ranges []Range, s Stream) (Event, error)
	// PageLocked reports whether the device copies from host memory at p directly, and
	// so possibly after Upload has returned.
	PageLocked(p Ptr, size int64) bool
}

// Memsetter is an optional interface of a [Device] that fills memory itself. To a device without
// it, package cdevice copies zeros.
type Memsetter interface {
	// Memset enqueues on s the filling of size bytes at p with value.
	Memset(p Ptr, value byte, size int64, s Stream) error
}

// CopyStreamer is an optional interface of a [Device] that keeps streams for copies, so that a
// copy need not create one. Of a device without it, package cdevice takes [Device.NewStream].
type CopyStreamer interface {
	// CopyStream returns a stream for a copy for which the caller names none; the caller
	// closes it when the copy is enqueued. It is not ordered with other streams, and nothing
	// else is enqueued on it until it is closed.
	CopyStream() (Stream, error)
}

// Prober is an optional interface of a [Device] that knows what memory is at an address,
// including memory that other libraries allocated. Full validation of memory that the CPU cannot
// access, and of page-locked and managed memory, needs it: without it, the error wraps
// [ErrNotSupported].
type Prober interface {
	// Lookup returns the allocation that p is in.
	Lookup(p Ptr) (Allocation, error)
}

// Coherent is an optional interface of a [Device] and [Prober] whose work may access all memory of the
// CPU at its addresses. Libraries then allocate plain and managed memory for the device, and declare it as the
// device's own. Package cdevice asks the Prober about each buffer of such a batch before it says
// that the CPU cannot access the memory.
type Coherent interface {
	// HardwareCoherent reports whether the device uses the page tables of the CPU. It says nothing of
	// memory that the device allocated as its own: [Device.CPUAccessible] does.
	HardwareCoherent() bool
}

// WaitCounter is an optional interface of a [Device] that limits the memory that waits to be freed:
// where too much waits, Allocate waits. Without it, memory whose release package cdevice defers is
// not limited.
type WaitCounter interface {
	// CountWaiting adds bytes to the memory that was released and that pending work may still
	// use. When the work has completed, it is called with the same number below zero.
	CountWaiting(bytes int64)
}

// Waiter is an optional interface of a [Stream]. Without it, package cdevice keeps memory that work on
// the stream uses until all work of the device has completed.
type Waiter interface {
	// AfterWork is [Device.AfterWork] for the work already enqueued on this stream. Where no event
	// can be recorded on the stream, because it is closed or is being captured, f is called after all
	// work of the device.
	AfterWork(f func())
}

// Allocation is the memory that an address is in.
type Allocation struct {
	// ID is the kind of memory and the device that it belongs to. The CPU stands for memory that
	// the driver of the device does not know: plain host memory, or memory that was freed.
	ID ID
	// Start and Size are the address and the bytes of the whole allocation; zero for the CPU.
	Start Ptr
	Size  int64
}

// Contains reports whether size bytes at p are in the allocation.
func (a Allocation) Contains(p Ptr, size int64) bool {
	return p >= a.Start && size <= a.Size && p-a.Start <= Ptr(a.Size-size)
}

// Memory is one allocation on a device. Call Free(s) if the last work that uses the memory was enqueued
// on s, and FreeAfter(e) if it is behind e; call FreeAfter(nil) if no pending work uses it, as in the
// release function of a record batch (cdevice.Lifetime), which is called after that work. Free(nil) is for
// work on the default stream: it does not wait for streams that the program has made.
type Memory interface {
	// Ptr returns the address. Without bytes, it may be 0.
	Ptr() Ptr
	// Size returns the number of bytes that were asked for.
	Size() int64
	// Free frees the memory after the work enqueued on s. It does not wait, and takes the
	// memory even if it returns an error: the device then frees it later. It is called
	// once; a second call of Free or FreeAfter is an error.
	Free(s Stream) error
	// FreeAfter frees the memory once e is complete. Pass nil only if no pending work uses the
	// memory and the stream given to Allocate has reached the allocation. e may be closed when
	// FreeAfter returns, and must not be recorded again.
	FreeAfter(e Event) error
}

// Stream is an ordered queue of work on one device.
type Stream interface {
	// Handle returns the native handle: a CUstream for CUDA, 0 for the CPU.
	Handle() uintptr
	// Device returns the device that runs the work.
	Device() Device
	// Record makes e complete once all work enqueued on this stream so far has completed.
	Record(e Event) error
	// WaitEvent makes work enqueued from now on wait for the latest Record of e.
	// It returns at once. An event that was never recorded counts as complete.
	WaitEvent(e Event) error
	// Synchronize waits until all work enqueued so far has completed, or ctx is done. The
	// work itself goes on when ctx ends the wait; no goroutine or thread of the wait remains.
	Synchronize(ctx context.Context) error
	// Close ends an owned stream once its work has completed; a borrowed one is left
	// to its owner. Closing twice is allowed.
	Close() error
}

// Event marks a point in a stream.
type Event interface {
	// Handle returns the native handle: a CUevent for CUDA, 0 for the CPU.
	Handle() uintptr
	// Device returns the device whose streams record the event.
	Device() Device
	// Query reports whether the work before the latest Record has completed. An event that was
	// never recorded counts as complete.
	Query() (bool, error)
	// Synchronize waits until the event is complete, or ctx is done.
	Synchronize(ctx context.Context) error
	// OnComplete calls f when the event is complete: on this goroutine, if it is already,
	// otherwise later on another one. It does not wait. The event may be closed before f is
	// called, and must not be recorded again. For what f may do, see [Device.AfterWork].
	OnComplete(f func())
	// Close ends an owned event; a borrowed one is left to its owner. Closing
	// twice is allowed.
	Close() error
}
