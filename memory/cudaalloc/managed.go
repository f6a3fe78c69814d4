package cudaalloc

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// ManagedAllocator is a memory.Allocator of arrow-go over managed memory: builders fill it
// on the host, the GPU works on the same addresses, and the driver moves the pages.
// Freed memory is cached by size class, because allocating it is slow and freeing it
// waits for the GPU. It may be used from any goroutine.
//
// Memory may be freed (arrays released) only when no pending work uses it: it is given to the
// next Allocate at once. Batches that package cdevice wraps as memory of [ManagedAllocator.Device] are
// released after pending work, once they were exported or copied from.
type ManagedAllocator struct {
	mem *sizeclass.Allocator
	dev *Device
}

// AllocatorOption configures [NewManagedAllocator].
type AllocatorOption func(*allocatorOptions)

type allocatorOptions struct{ limit int64 }

// WithLimit bounds the bytes that the allocator holds, including cached ones; 0 is no limit.
func WithLimit(bytes int64) AllocatorOption { return func(o *allocatorOptions) { o.limit = bytes } }

// NewManagedAllocator returns an allocator of managed memory of the GPU. One allocator for the whole
// process is best. NewManagedAllocator waits for memory as [Device.Allocate] does.
//
// The error wraps device.ErrNotSupported where the GPU has no managed memory, or no
// concurrent managed access: builders write while the GPU works. See [Device.CPUAccessible].
func NewManagedAllocator(gpu *Device, opts ...AllocatorOption) (*ManagedAllocator, error) {
	if gpu == nil {
		return nil, argument.Nil("cuda: NewManagedAllocator", "gpu", "a GPU")
	}
	if err := argument.Options("cuda: NewManagedAllocator", opts); err != nil {
		return nil, err
	}
	var o allocatorOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.limit < 0 {
		return nil, fmt.Errorf("cuda: NewManagedAllocator: WithLimit(%d), want 0 or more: %w", o.limit, arrow.ErrInvalid)
	}
	if !gpu.Managed().CPUAccessible() {
		return nil, fmt.Errorf("cuda: %s: the host must not touch managed memory while the GPU works (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0): %w",
			gpu.Managed().ID(), device.ErrNotSupported)
	}
	// Check now: a builder could not report the error later.
	probe, err := gpu.Managed().Allocate(context.Background(), 1, nil)
	if err != nil {
		return nil, err
	}
	if err := probe.Free(nil); err != nil {
		return nil, err
	}
	m := &ManagedAllocator{sizeclass.NewAllocator(sizeclass.New(sizeclass.Of(gpu.Managed()), sizeclass.Limits{Total: o.limit})), gpu.Managed()}
	sizeclass.Public(m.mem, newAllocationError)
	gpu.gpu.Heap.OnTrim(m.Trim)
	return m, nil
}

// Allocate returns size zeroed bytes, aligned to 64 bytes at least. It waits for memory as
// [Device.Allocate] does, and panics with an [*AllocationError] when there is none.
func (m *ManagedAllocator) Allocate(size int) []byte { return m.mem.Allocate(size) }

// AllocateUninitialized is Allocate without zeroing, for memory that is overwritten anyway.
func (m *ManagedAllocator) AllocateUninitialized(size int) []byte {
	return m.mem.AllocateUninitialized(size)
}

// TryAllocate is AllocateUninitialized with an error instead of a panic. ctx ends the wait for
// memory.
func (m *ManagedAllocator) TryAllocate(ctx context.Context, size int) ([]byte, error) {
	return m.mem.TryAllocate(ctx, size)
}

// Reallocate returns size bytes that begin with those of b; the bytes after them are zero. It
// frees b or returns a part of it, unless it panics as Allocate does.
func (m *ManagedAllocator) Reallocate(size int, b []byte) []byte { return m.mem.Reallocate(size, b) }

// Free frees memory of this allocator, and panics with an [*AllocationError] for other memory.
func (m *ManagedAllocator) Free(b []byte) { m.mem.Free(b) }

// Trim gives the cached memory back to the GPU.
func (m *ManagedAllocator) Trim() { m.mem.Trim() }

// ReadStats returns how much memory of the allocator is in use, and how much it holds.
func (m *ManagedAllocator) ReadStats() Usage {
	use, _ := m.mem.Stats()
	return Usage(use)
}

// Device returns the device whose memory this is: device.CUDAManaged.
func (m *ManagedAllocator) Device() *Device { return m.dev }
