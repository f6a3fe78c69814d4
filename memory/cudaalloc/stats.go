package cudaalloc

import (
	"github.com/arrowdevice/arrowdevice/device"
)

// Stats describes the memory that was allocated through this package on one GPU, and the work
// that is left to do for it.
type Stats struct {
	Device     Usage // memory on the GPU
	Pinned     Usage // page-locked host memory
	Managed    Usage // managed memory
	Opened     Usage // memory of other processes; see [Device.OpenMemory]
	Registered Usage // host memory of others; see [Device.RegisterMemory]
	// Waiting counts frees and functions of AfterWork and OnComplete that wait for
	// pending work. Memory is live until it is freed.
	Waiting int64
	// WaitingBytes is the size of the memory that was freed, or released as a batch of package
	// cdevice, and waits for pending work; see [Limits.Waiting]. Of batches that were imported, it has
	// what follows from their lengths: not the bytes of strings. Memory of other processes that is
	// closed, and memory that is only unregistered, has no part in it.
	WaitingBytes int64
	// Lost counts allocations and handles that the driver failed to free after three
	// attempts.
	Lost int64
	// CallbackPanics counts functions of AfterWork and OnComplete that did not return: they panicked, or
	// ended their goroutine.
	CallbackPanics int64
}

// Usage describes memory of one kind, of a GPU or of an allocator. To a GPU, all memory that an
// allocator of [NewManagedAllocator] or package hostpinned holds is live.
type Usage struct {
	Live        int64 // bytes in use; of an allocator, rounded up to its size classes
	Peak        int64 // the most that Live has been
	Held        int64 // bytes taken from the driver (of an allocator: from the GPU); 0 for a pool
	Cached      int64 // bytes of Held that are kept for later and of which nothing is in use; see [Limits]
	Allocations int64 // allocations in use
	Total       int64 // allocations ever made
}

// ReadStats returns the statistics since the GPU was opened. Each number is exact, but they are
// read one after the other.
func (d *Device) ReadStats() Stats {
	h, deferred := &d.gpu.Heap, &d.gpu.Deferred
	opened, registered := h.UsageOfOthers()
	s := Stats{
		Device: Usage(h.Usage(device.OwnMemory)), Pinned: Usage(h.Usage(device.PinnedMemory)), Managed: Usage(h.Usage(device.ManagedMemory)),
		Opened: Usage(opened), Registered: Usage(registered),
		Lost: deferred.Lost(), CallbackPanics: deferred.Panics(),
	}
	s.Waiting, s.WaitingBytes = deferred.Waiting()
	return s
}
