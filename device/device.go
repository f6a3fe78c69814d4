// Package device defines device identifiers, memory, streams and events, and the
// registry of device backends. It imports no CUDA and no cgo; backends import it and
// register themselves (see [Register]).
//
// [CPUDevice] is the CPU, the reference implementation. Package devicetest is the
// contract of a Device, as a test that every backend passes.
package device

import (
	"context"
	"errors"
	"fmt"
)

// Type is a kind of device memory. The values are those of
// ArrowDeviceType in the C device data interface, which equal DLPack's. A value
// that is not listed here is carried, never interpreted.
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

// String is the name in the specification, in lower case and without the
// ARROW_DEVICE_ prefix: "cuda_host". A type that the specification does not
// list prints as "device_type(17)".
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("device_type(%d)", int32(t))
}

// CPUAccessible reports whether, by the meaning of the type alone, the CPU can read
// this memory at its address (once its event has completed). For CUDAManaged,
// [Device.CPUAccessible] of the device knows better.
func (t Type) CPUAccessible() bool {
	switch t {
	case CPU, CUDAHost, ROCMHost, CUDAManaged:
		return true
	}
	return false
}

// NoOrdinal is the device id of types that have no notion of one, the CPU above all.
const NoOrdinal = -1

// ID names one device of the machine: ArrowDeviceArray.device_type and device_id.
type ID struct {
	Type    Type
	Ordinal int64 // NoOrdinal for the CPU; the driver's ordinal for CUDA
}

// String prints "cpu" or "cuda:0".
func (id ID) String() string {
	if id.Ordinal == NoOrdinal {
		return id.Type.String()
	}
	return fmt.Sprintf("%s:%d", id.Type, id.Ordinal)
}

// Ptr is an address in a device's memory. Go code reads through it only where
// the device is host readable.
type Ptr uintptr

// Range is one piece of a copy: Size bytes from Src to Dst.
type Range struct {
	Dst, Src Ptr
	Size     int64 // bytes
}

// ErrNotSupported is wrapped by every error that means that this machine, this driver
// or this build cannot do that, and trying again will not help.
var ErrNotSupported = errors.New("not supported")

// Device is one device of this process. Its methods may be called from any
// goroutine at any time.
//
// A nil Stream argument means the device's default stream. Work on a stream is
// done in order, and may be done later than the call returns. Any other argument that is nil,
// a context above all, is an error that names it.
type Device interface {
	// ID returns the type and the ordinal that exported arrays carry.
	ID() ID
	// Name is for people: "NVIDIA H200", "cpu".
	Name() string
	// CPUAccessible reports whether the CPU may read memory of this device at its
	// address, once the work that fills it is done and while other work goes on. Managed
	// memory (CUDAManaged) is not host readable on machines where only an idle GPU permits
	// it.
	CPUAccessible() bool

	// Allocate returns owned memory of size bytes, aligned to 64 bytes at least,
	// with undefined contents, usable by work on s that is enqueued from now on.
	// A size of zero is allowed. A negative size is an error. Where there is no memory,
	// it waits for memory that was freed and that pending work may still use; ctx ends
	// that wait with an error.
	Allocate(ctx context.Context, size int64, s Stream) (Memory, error)
	// AllocateHost returns owned host memory that this device copies from and to at
	// full speed and later than the call returns (page-locked). It may be cached. It waits as
	// Allocate does.
	AllocateHost(ctx context.Context, size int64) (Memory, error)
	// Copy enqueues all ranges on s. Sources and destinations may be memory of
	// this device or host memory; ranges of one call must not overlap. The memory
	// must stay where it is until the work is done: memory of Go is pinned.
	Copy(ranges []Range, s Stream) error
	// Upload is Copy from host memory. What is not page-locked is read before it
	// returns, and need neither be pinned nor kept; what is (see PageLocked) may be
	// read later. Ranges that are neighbours at their destination cost one copy. The
	// event, owned by the caller, is complete when all work is done that is on s by
	// then; it must not be recorded again. ctx ends a wait for staging memory. After an error,
	// part of the copies may be enqueued.
	Upload(ctx context.Context, ranges []Range, s Stream) (Event, error)
	// PageLocked reports whether the device copies from host memory at p directly, and
	// so later than Upload returns.
	PageLocked(p Ptr, size int64) bool
	// Memset enqueues on s the filling of size bytes at p with value.
	Memset(p Ptr, value byte, size int64, s Stream) error

	// AfterWork calls f after all work already enqueued on any stream of this device,
	// including streams of other libraries, has completed. It does not wait: f is called on
	// this goroutine, where nothing can be pending, or later on another one. Memory that
	// work on unknown streams may use is freed in this way; where an event is behind the
	// work, [Event.OnComplete] waits for less. f may block: neither frees nor other
	// functions wait for it. A panic of f on another goroutine does not end the process. A nil
	// f panics at once.
	AfterWork(f func())

	// CopyStream returns a stream for copies for which the caller names none, to be
	// closed when the copy is enqueued. It is not ordered with other streams, and nothing else
	// is enqueued on it until it is closed. It may be cached.
	CopyStream() (Stream, error)
	// NewStream returns an owned stream, to be closed.
	NewStream() (Stream, error)
	// WrapStream borrows a stream that another library owns, by its native handle.
	WrapStream(handle uintptr) (Stream, error)
	// NewEvent returns an owned event that was never recorded, to be closed.
	NewEvent() (Event, error)
	// WrapEvent borrows an event that another library owns, by its native handle:
	// for an imported array, the value that ArrowDeviceArray.sync_event points to.
	WrapEvent(handle uintptr) (Event, error)
}

// Prober is a Device that knows what memory is at an address, including memory that other
// libraries allocated.
type Prober interface {
	Device
	// Lookup asks what memory there is at p.
	Lookup(p Ptr) (Allocation, error)
}

// Allocation is the memory that an address is in.
type Allocation struct {
	// ID is the kind of memory and the device it belongs to. The CPU: memory that the
	// driver of the device does not know, plain host memory or memory that was freed.
	ID ID
	// Start and Size are those of the whole allocation; zero for the CPU.
	Start Ptr
	Size  int64 // bytes
}

// Contains reports whether size bytes at p are in the allocation.
func (a Allocation) Contains(p Ptr, size int64) bool {
	return p >= a.Start && size <= a.Size && p-a.Start <= Ptr(a.Size-size)
}

// Memory is one allocation on a device.
type Memory interface {
	Ptr() Ptr
	Size() int64 // bytes
	// Free ends the memory after the work enqueued on s. It does not wait, and takes the
	// memory even if it returns an error: the device then ends it later. It is called
	// once; a second call, or one of FreeAfter, is an error.
	Free(s Stream) error
	// FreeAfter is Free once e is complete. nil: no pending work uses the memory, nor is
	// its allocation pending on the stream that Allocate was given. e may be closed when
	// FreeAfter returns, and must not be recorded again.
	FreeAfter(e Event) error
}

// Stream is an ordered queue of work on one device.
type Stream interface {
	// Handle is the native handle: a CUstream for CUDA, 0 for the CPU.
	Handle() uintptr
	// Device is the device whose work this is.
	Device() Device
	// Record makes e complete once all work enqueued on this stream so far is done.
	Record(e Event) error
	// WaitEvent makes work enqueued from now on wait for the latest Record of e.
	// It returns at once. An event that was never recorded counts as complete.
	WaitEvent(e Event) error
	// Synchronize waits until all work enqueued so far is done, or ctx is. The
	// work itself goes on when ctx ends the wait; nothing else of the call does.
	Synchronize(ctx context.Context) error
	// Close ends an owned stream once its work is done; a borrowed one is left
	// to its owner. Closing twice is allowed.
	Close() error
}

// Event marks a point in a stream.
type Event interface {
	// Handle is the native handle: a CUevent for CUDA, 0 for the CPU.
	Handle() uintptr
	// Query reports whether the latest recorded point was reached. An event that was
	// never recorded counts as reached.
	Query() (bool, error)
	// Synchronize waits until the latest recorded point is reached, or ctx is done.
	Synchronize(ctx context.Context) error
	// OnComplete calls f when the latest recorded point is reached: on this goroutine, if
	// it is already, or later on another one. It does not wait. The event may be closed
	// before that, and must not be recorded again. See [Device.AfterWork] for f.
	OnComplete(f func())
	// Close ends an owned event; a borrowed one is left to its owner. Closing
	// twice is allowed.
	Close() error
}
