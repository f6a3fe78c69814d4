package cudaalloc

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Error is a call of the CUDA driver that failed. errors.Is finds its Code, and
// device.ErrNotSupported where this machine or driver cannot do it.
type Error struct {
	Call   string // the function, as the manual names it: "cuMemAlloc"
	Args   []any  // the arguments that help to understand the error
	Device string // "cuda:0"; empty for a call that concerns no device
	Code   Code   // the result of the call
	Name   string // the driver's name of the code: "CUDA_ERROR_OUT_OF_MEMORY"
	Text   string // the driver's description of the code: "out of memory"
}

func init() {
	cuda.Public = newError
	cuda.PublicCode = func(c cuda.Code) error { return bareCode{Code(c)} }
}

// bareCode is a code that no call returned. errors.Is finds the Code, and the one of package cuda.
type bareCode struct{ Code }

func (c bareCode) Unwrap() []error { return []error{c.Code, cuda.Code(c.Code)} }

func newError(e *cuda.Error) error {
	return &Error{Call: e.Call, Args: e.Args, Device: e.Device, Code: Code(e.Code), Name: e.Name, Text: e.Text}
}

func (e *Error) internal() *cuda.Error {
	return &cuda.Error{Call: e.Call, Args: e.Args, Device: e.Device, Code: cuda.Code(e.Code), Name: e.Name, Text: e.Text}
}

// Error returns "cuda: cuMemAlloc(67108864) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY: out of memory".
func (e *Error) Error() string { return e.internal().Error() }

// Unwrap returns the code, and device.ErrNotSupported where trying again does not help.
func (e *Error) Unwrap() []error { return append(e.internal().Unwrap(), e.Code) }

// Code is a CUresult, the result of a call of the driver. errors.Is finds the code of an
// [Error]; in [OutOfMemory] it finds syscall.ENOMEM as well.
type Code int

// Error returns "CUDA error 2".
func (c Code) Error() string { return cuda.Code(c).Error() }

// Is reports whether target is syscall.ENOMEM and c is [OutOfMemory].
func (c Code) Is(target error) bool { return cuda.Code(c).Is(target) }

// Codes that callers distinguish. Any other can be compared as Code(719).
const (
	InvalidValue                Code = 1
	OutOfMemory                 Code = 2
	NoDevice                    Code = 100
	InvalidContext              Code = 201
	InvalidHandle               Code = 400
	IllegalAddress              Code = 700
	ContextIsDestroyed          Code = 709
	HostMemoryAlreadyRegistered Code = 712
	HostMemoryNotRegistered     Code = 713
	NotSupported                Code = 801
)

// AllocationError is the value with which an allocator panics, because a memory.Allocator cannot
// return an error: that of [NewManagedAllocator], and that of package hostpinned. Where they return an
// error, it is this one too.
type AllocationError struct {
	Op     string    // "allocate", "reallocate" or "free"
	Device device.ID // the device whose memory the allocator has
	Size   int       // bytes asked for, or those of memory that is not the allocator's
	Err    error     // the cause: an [*Error], [ErrLimit], the error of a context
}

func newAllocationError(e *sizeclass.Error) error { return (*AllocationError)(e) }

// Error returns "allocate 1024 bytes of cuda_host:0 memory: " and the cause.
func (e *AllocationError) Error() string { return (*sizeclass.Error)(e).Error() }

// Unwrap returns the cause.
func (e *AllocationError) Unwrap() error { return e.Err }

// ErrLimit is wrapped by the error of an allocation that would exceed the limit of its allocator.
var ErrLimit = sizeclass.ErrLimit

// ErrClosed is wrapped by the errors of a stream or an event that is used after it was closed.
var ErrClosed = gpu.ErrClosed
