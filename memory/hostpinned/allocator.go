package hostpinned

import (
	"github.com/apache/arrow-go/v18/arrow/memory"

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
	dev      *cudaalloc.Device
	fallback *sizeclass.Fallback // nil: none
}

// AllocationError is the value with which an allocator panics. Its fields are Device, Size (the
// bytes that were asked for, or those of memory that is not the allocator's) and Err, which it
// wraps: [ErrLimit], or the driver's error.
type AllocationError = sizeclass.Error

// ErrLimit is wrapped by the error of an allocation that would exceed the allocator's limit.
var ErrLimit = sizeclass.ErrLimit

// New returns an allocator that page-locks at most limit bytes, cached ones
// included; 0 is no limit. Page-locked memory is lost to the rest of the machine, so a
// limit is wise, and one allocator for the whole process is best. Its memory comes from gpu's
// page-locked memory, and is live in gpu's Stats while it is cached here.
//
// An allocation beyond the limit panics. That ends the process where the allocation is made on a
// goroutine that does not recover: arrow-go's Parquet reader (package pqarrow) allocates on
// goroutines of its own if ArrowReadProperties.Parallel is set, and RecordReader.Next recovers
// from nothing there. Below such readers, give the allocator a fallback: [WithFallback].
//
// An option that is nil does nothing. A nil gpu panics.
func New(gpu *cudaalloc.Device, limit int64, opts ...AllocatorOption) *Allocator {
	if gpu == nil {
		panic(errNoGPU)
	}
	var o allocatorOptions
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	cache := sizeclass.New(sizeclass.Of(gpu.Pinned()), sizeclass.Limits{Total: limit})
	a := &Allocator{dev: gpu.Pinned()}
	if o.fallback != nil {
		a.Allocator, a.fallback = sizeclass.NewFallbackAllocator(cache, o.fallback)
	} else {
		a.Allocator = sizeclass.NewAllocator(cache)
		sizeclass.Advise(a.Allocator, "hostpinned.WithFallback takes ordinary memory then")
	}
	gpu.OnTrim(a.Trim)
	return a
}

// AllocatorOption is a choice of [New].
type AllocatorOption func(*allocatorOptions)

type allocatorOptions struct{ fallback memory.Allocator }

// WithFallback takes memory from mem, which is not page-locked, where an allocation would exceed the
// limit or the driver refuses it; nil is memory.DefaultAllocator. Memory that is freed goes
// back to the allocator that it is of, and a Reallocate that moves tries page-locked memory
// again. A driver that refused is not asked again for a second. [Allocator.Fallback] counts.
//
// Copies stage such memory: PageLocked of the device reports false for it. A GPU must not use its
// addresses, so package cdevice refuses it in batches that are wrapped as memory of
// [Allocator.Device]: wrap batches of this allocator with device.CPUDevice(). Copies still read
// their page-locked buffers directly.
func WithFallback(mem memory.Allocator) AllocatorOption {
	if mem == nil {
		mem = memory.DefaultAllocator
	}
	return func(o *allocatorOptions) { o.fallback = mem }
}

// FallbackStats counts what [WithFallback] gave: Allocations and Bytes since New, and Live, the
// bytes in use.
type FallbackStats = sizeclass.FallbackStats

// Fallback counts the memory that is not page-locked. Without [WithFallback], all is zero.
// Stats does not count that memory.
func (a *Allocator) Fallback() FallbackStats {
	if a.fallback == nil {
		return FallbackStats{}
	}
	return a.fallback.Stats()
}

// Device is the device whose memory this is: device.CUDAHost.
func (a *Allocator) Device() *cudaalloc.Device { return a.dev }
