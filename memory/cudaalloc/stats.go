package cudaalloc

import (
	"sync/atomic"

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
	// CallbackPanics counts functions of AfterWork, OnComplete and OnTrim that did not return:
	// they panicked, or ended their goroutine.
	CallbackPanics int64
}

// Usage describes memory of one kind, of a GPU or of an allocator. To a GPU, all memory that an
// allocator of [NewManaged] or package hostpinned holds is live.
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
	return Stats{
		Device: d.used(onDevice), Pinned: d.used(onHost), Managed: d.used(inManaged), Opened: d.opened.read(), Registered: d.registered.read(),
		Waiting: d.deferred.count.Load(), WaitingBytes: d.deferred.bytes.Load(),
		Lost: d.deferred.lost.Load(), CallbackPanics: d.panics.Load(),
	}
}

const (
	onDevice = iota
	onHost
	inManaged
	purposes
)

func (d *Device) purpose() int {
	switch d.kind {
	case device.CUDAHost:
		return onHost
	case device.CUDAManaged:
		return inManaged
	}
	return onDevice
}

type usage struct{ live, peak, allocations, total atomic.Int64 }

func (u *usage) add(size int64) {
	u.allocations.Add(1)
	u.total.Add(1)
	live := u.live.Add(size)
	for peak := u.peak.Load(); live > peak && !u.peak.CompareAndSwap(peak, live); {
		peak = u.peak.Load()
	}
}

func (u *usage) sub(size int64) {
	u.live.Add(-size)
	u.allocations.Add(-1)
}

func (u *usage) read() Usage {
	return Usage{Live: u.live.Load(), Peak: u.peak.Load(), Allocations: u.allocations.Load(), Total: u.total.Load()}
}

func (g *gpu) used(purpose int) Usage {
	all := g.usage[purpose].read()
	if cache := g.caches[purpose]; cache != nil {
		s := cache.Stats()
		all.Held, all.Cached = s.Held, s.Idle
	}
	return all
}
