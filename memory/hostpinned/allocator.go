package hostpinned

import (
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Allocator is a memory.Allocator of arrow-go over page-locked memory, to be used
// under every builder and by the IPC reader (ipc.WithAllocator). What is freed is
// cached by size class, because page-locking costs milliseconds. It may be used from
// any goroutine, and every GPU of the process may copy from and to its memory.
//
// Memory may be freed (arrays released) only when no pending copy reads or writes it: it is
// given to the next Allocate at once. Batches that package cdevice wraps as memory of
// [Allocator.Device] are released after pending work, once they were exported or copied from.
//
// Allocate and Reallocate wait for memory like cudaalloc.Device.Allocate, and panic with an
// [*AllocationError] when there is none, since a memory.Allocator cannot return an error; Free
// panics for memory that is not this allocator's. TryAllocate takes a context and
// returns an error instead, and does not zero the memory; nor does AllocateUninitialized. Trim
// gives back to the GPU what is cached; Stats are the bytes in use, the most that were, and
// those held.
type Allocator struct {
	*sizeclass.Allocator
	dev *cudaalloc.Device
}

// AllocationError is the value with which an allocator panics. Its fields are Device, Size (the
// bytes that were asked for) and Err, which it wraps: [ErrLimit], or the driver's error.
type AllocationError = sizeclass.Error

// ErrLimit is wrapped by the error of an allocation that would exceed the allocator's limit.
var ErrLimit = sizeclass.ErrLimit

// New returns an allocator that page-locks at most limit bytes, cached ones
// included; 0 is no limit. Page-locked memory is lost to the rest of the machine, so a
// limit is wise, and one allocator for the whole process is best. Its memory comes from gpu's
// page-locked memory, and is live in gpu's Stats while it is cached here.
func New(gpu *cudaalloc.Device, limit int64) *Allocator {
	a := &Allocator{sizeclass.NewAllocator(sizeclass.New(sizeclass.Of(gpu.Host()), sizeclass.Limits{Total: limit})), gpu.Host()}
	gpu.OnTrim(a.Trim)
	return a
}

// Device is the device whose memory this is: device.CUDAHost.
func (a *Allocator) Device() *cudaalloc.Device { return a.dev }
