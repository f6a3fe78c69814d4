package hostpinned

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Allocator is a memory.Allocator of arrow-go over page-locked memory, to be used
// under every builder and by the IPC reader (ipc.WithAllocator). Freed memory is
// cached by size class, because page-locking costs milliseconds. It may be used from
// any goroutine, and every GPU of the process may copy from and to its memory.
//
// Memory may be freed (arrays released) only when no pending copy reads or writes it: it is
// given to the next Allocate at once. Batches that package cdevice wraps as memory of
// [Allocator.Device] are released after pending work, once they were exported or copied from.
type Allocator struct {
	mem *sizeclass.Allocator
	dev *cudaalloc.Device
}

// ErrLimit is wrapped by the error of an allocation that would exceed the allocator's limit. It
// is cudaalloc.ErrLimit.
var ErrLimit = cudaalloc.ErrLimit

// NewAllocator returns an allocator of gpu's page-locked memory, which is live in the statistics of gpu while
// it is cached here. Page-locked memory is lost to the rest of the machine, so [WithLimit] is wise, and one
// allocator for the whole process is best.
//
// An allocation beyond the limit panics. That ends the process where the allocation is made on a
// goroutine that does not recover: arrow-go's Parquet reader (package pqarrow) allocates on
// goroutines of its own if ArrowReadProperties.Parallel is set, and RecordReader.Next recovers
// from nothing there. An allocator below such a reader needs [WithFallback].
func NewAllocator(gpu *cudaalloc.Device, opts ...AllocatorOption) (*Allocator, error) {
	if gpu == nil {
		return nil, argument.Nil("hostpinned: NewAllocator", "gpu", "a GPU")
	}
	if err := argument.Options("hostpinned: NewAllocator", opts); err != nil {
		return nil, err
	}
	var o allocatorOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.limit < 0 {
		return nil, fmt.Errorf("hostpinned: NewAllocator: WithLimit(%d), want 0 or more: %w", o.limit, arrow.ErrInvalid)
	}
	cache := sizeclass.New(sizeclass.Of(gpu.Pinned()), sizeclass.Limits{Total: o.limit})
	a := &Allocator{dev: gpu.Pinned()}
	if o.fallback != nil {
		a.mem = sizeclass.NewFallbackAllocator(cache, o.fallback)
	} else {
		a.mem = sizeclass.NewAllocator(cache)
		sizeclass.Advise(a.mem, "hostpinned.WithFallback takes ordinary memory then")
	}
	sizeclass.Public(a.mem, func(e *sizeclass.Error) error { return (*cudaalloc.AllocationError)(e) })
	core.Of(gpu).Heap.OnTrim(a.Trim)
	return a, nil
}

// Allocate returns size zeroed bytes, aligned to 64 bytes at least. It waits for memory as
// cudaalloc.Device.Allocate does, and panics with a *cudaalloc.AllocationError when there is none.
func (a *Allocator) Allocate(size int) []byte { return a.mem.Allocate(size) }

// AllocateUninitialized is Allocate without zeroing, for memory that is overwritten anyway.
func (a *Allocator) AllocateUninitialized(size int) []byte { return a.mem.AllocateUninitialized(size) }

// TryAllocate is AllocateUninitialized with an error instead of a panic. ctx ends the wait for
// memory.
func (a *Allocator) TryAllocate(ctx context.Context, size int) ([]byte, error) {
	return a.mem.TryAllocate(ctx, size)
}

// Reallocate returns size bytes that begin with those of b; the bytes after them are zero. It
// frees b or returns a part of it, unless it panics as Allocate does.
func (a *Allocator) Reallocate(size int, b []byte) []byte { return a.mem.Reallocate(size, b) }

// Free frees memory of this allocator, and panics with a *cudaalloc.AllocationError for other
// memory.
func (a *Allocator) Free(b []byte) { a.mem.Free(b) }

// Trim gives the cached memory back to the GPU.
func (a *Allocator) Trim() { a.mem.Trim() }

// Stats describes the memory of an [Allocator].
type Stats struct {
	Pinned   cudaalloc.Usage // page-locked memory
	Fallback cudaalloc.Usage // ordinary memory that [WithFallback] gave instead
}

// ReadStats returns how much memory of the allocator is in use, and how much it holds.
func (a *Allocator) ReadStats() Stats {
	pinned, fallback := a.mem.Stats()
	return Stats{Pinned: cudaalloc.Usage(pinned), Fallback: cudaalloc.Usage(fallback)}
}

// Device returns the device whose memory this is: device.CUDAHost.
func (a *Allocator) Device() *cudaalloc.Device { return a.dev }

// AllocatorOption configures [NewAllocator].
type AllocatorOption func(*allocatorOptions)

type allocatorOptions struct {
	limit    int64
	fallback memory.Allocator
}

// WithLimit bounds the bytes that the allocator page-locks, including cached ones; 0 is no limit. Small buffers of one
// size class are page-locked together, up to 64 KiB at once, so a limit below some MiB is reached early.
func WithLimit(bytes int64) AllocatorOption { return func(o *allocatorOptions) { o.limit = bytes } }

// WithFallback takes memory from mem, which is not page-locked, where an allocation would exceed the
// limit or the driver refuses it; nil is memory.DefaultAllocator. Freed memory goes
// back to the allocator that it came from, and a Reallocate that moves tries page-locked memory
// again. A driver that refused is not asked again for a second. [Stats.Fallback] counts that memory.
//
// Copies stage such memory: PageLocked of the device reports false for it. A GPU must not use its
// addresses, so package cdevice refuses it in batches that are wrapped as memory of
// [Allocator.Device]: wrap batches of this allocator with device.CPUDevice(). Copies still read
// their page-locked buffers directly. Other memory that is not page-locked is not recognised there.
func WithFallback(mem memory.Allocator) AllocatorOption {
	if mem == nil {
		mem = memory.DefaultAllocator
	}
	return func(o *allocatorOptions) { o.fallback = mem }
}
