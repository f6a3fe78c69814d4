package cudaalloc

import (
	"errors"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Error is a call of the CUDA driver that failed:
// "cuda: cuMemAlloc(67108864) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY: out of memory". Its fields are
// Call, Args, Device ("cuda:0"), Code, and the driver's Name and Text of the code.
type Error = cuda.Error

// Code is a CUresult. errors.Is finds the code of an [Error].
type Code = cuda.Code

// Codes that callers distinguish. Any other can be compared as Code(719).
const (
	InvalidValue                = cuda.InvalidValue
	OutOfMemory                 = cuda.OutOfMemory
	NoDevice                    = cuda.NoDevice
	InvalidContext              = cuda.InvalidContext
	InvalidHandle               = cuda.InvalidHandle
	IllegalAddress              = cuda.IllegalAddress
	ContextIsDestroyed          = cuda.ContextIsDestroyed
	HostMemoryAlreadyRegistered = cuda.HostMemoryAlreadyRegistered
	HostMemoryNotRegistered     = cuda.HostMemoryNotRegistered
	NotSupported                = cuda.NotSupported
)

// AllocationError is the value with which an allocator panics that has no memory,
// since a memory.Allocator cannot return an error. Its fields are Device, Size (the bytes that
// were asked for) and Err, which it wraps: the driver's error, or hostpinned.ErrLimit.
type AllocationError = sizeclass.Error

var (
	errNoEvent      = errors.New("cuda: event = nil, want an event: no event has the handle NULL")
	errForeignEvent = errors.New("it is no event of CUDA")
	errNothingFreed = errors.New("nothing was freed for a while")
)
