package cudaalloc

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
)

// Stats counts what is allocated through this package on one GPU, and what waits there.
type Stats struct {
	Device  Usage // memory on the GPU
	Host    Usage // page-locked host memory
	Managed Usage // managed memory
	// Waiting counts what ends after pending work: memory that was freed (it is live
	// until then), functions of AfterWork and OnComplete.
	Waiting int64
	// WaitingBytes is the size of that memory; see [Limits.Waiting].
	WaitingBytes int64
	// Lost counts allocations and handles that the driver failed to free after three
	// attempts.
	Lost int64
	// CallbackPanics counts functions of AfterWork, OnComplete and OnTrim that did not return:
	// they panicked, or ended their goroutine.
	CallbackPanics int64
}

// Usage counts memory of one kind. Memory that an allocator of [NewManaged] or package
// hostpinned holds is live, in use or not.
type Usage struct {
	Live        int64 // bytes
	Peak        int64 // the most bytes that were live at once
	Allocations int64 // that are live
	Total       int64 // allocations ever made
	Cached      int64 // bytes that the GPU's caches keep though nothing uses them, see [Limits]; of a pool: 0
}

// Stats returns counts since the GPU was opened. Each number is exact, but they are read one
// after the other.
func (d *Device) Stats() Stats {
	return Stats{
		Device: d.used(onDevice), Host: d.used(onHost), Managed: d.used(inManaged),
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

func (g *gpu) used(purpose int) Usage {
	u := &g.usage[purpose]
	all := Usage{Live: u.live.Load(), Peak: u.peak.Load(), Allocations: u.allocations.Load(), Total: u.total.Load()}
	if cache := g.caches[purpose]; cache != nil {
		all.Cached = cache.Stats().Idle
	}
	return all
}
