package cudaalloc

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Managed is a memory.Allocator of arrow-go over managed memory: builders fill it
// on the host, the GPU works on the same addresses, and the driver moves the pages.
// Freed memory is cached by size class, because allocating it is slow and freeing it
// waits for the GPU. It may be used from any goroutine.
//
// Memory may be freed (arrays released) only when no pending work uses it: it is given to the
// next Allocate at once. Batches that package cdevice wraps as memory of [Managed.Device] are
// released after pending work, once they were exported or copied from.
type Managed struct {
	mem *sizeclass.Allocator
	dev *Device
}

// NewManaged returns an allocator of managed memory of the GPU that holds at most
// limit bytes, including cached ones; 0 is no limit. One allocator for the whole
// process is best. NewManaged waits for memory as [Device.Allocate] does.
//
// The error wraps device.ErrNotSupported where the GPU has no managed memory, or no
// concurrent managed access: builders write while the GPU works. See [Device.CPUAccessible].
func NewManaged(gpu *Device, limit int64) (*Managed, error) {
	if gpu == nil {
		return nil, argument.Nil("cuda: managed memory", "gpu", "a GPU")
	}
	if limit < 0 {
		return nil, fmt.Errorf("cuda: managed memory: limit = %d, want 0 or more", limit)
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
	m := &Managed{sizeclass.NewAllocator(sizeclass.New(sizeclass.Of(gpu.Managed()), sizeclass.Limits{Total: limit})), gpu.Managed()}
	sizeclass.Public(m.mem, newAllocationError)
	gpu.gpu.Heap.OnTrim(m.Trim)
	return m, nil
}

// Allocate returns size zeroed bytes, aligned to 64 bytes at least. It waits for memory as
// [Device.Allocate] does, and panics with an [*AllocationError] when there is none.
func (m *Managed) Allocate(size int) []byte { return m.mem.Allocate(size) }

// AllocateUninitialized is Allocate without zeroing, for memory that is overwritten anyway.
func (m *Managed) AllocateUninitialized(size int) []byte { return m.mem.AllocateUninitialized(size) }

// TryAllocate is AllocateUninitialized with an error instead of a panic. ctx ends the wait for
// memory.
func (m *Managed) TryAllocate(ctx context.Context, size int) ([]byte, error) {
	return m.mem.TryAllocate(ctx, size)
}

// Reallocate returns size bytes that begin with those of b; the bytes after them are zero. It
// frees b or returns a part of it, unless it panics as Allocate does.
func (m *Managed) Reallocate(size int, b []byte) []byte { return m.mem.Reallocate(size, b) }

// Free frees memory of this allocator, and panics with an [*AllocationError] for other memory.
func (m *Managed) Free(b []byte) { m.mem.Free(b) }

// Trim gives the cached memory back to the GPU.
func (m *Managed) Trim() { m.mem.Trim() }

// ReadStats returns how much memory of the allocator is in use, and how much it holds.
func (m *Managed) ReadStats() Usage {
	use, _ := m.mem.Stats()
	return Usage(use)
}

// Device returns the device whose memory this is: device.CUDAManaged.
func (m *Managed) Device() *Device { return m.dev }

// Prefetch enqueues on s the moving of b, memory of this allocator, to the GPU.
func (m *Managed) Prefetch(b []byte, s device.Stream) error {
	return m.dev.Prefetch(pointer(b), int64(len(b)), s)
}

// PrefetchToHost enqueues on s the moving of b, memory of this allocator, to the host.
func (m *Managed) PrefetchToHost(b []byte, s device.Stream) error {
	return m.dev.PrefetchToHost(pointer(b), int64(len(b)), s)
}

func pointer(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
