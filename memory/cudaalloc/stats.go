package cudaalloc

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
)

// Stats is what is allocated through this package on one GPU.
type Stats struct {
	Device  Usage // memory on the GPU
	Host    Usage // page-locked host memory, what allocators cache included
	Managed Usage // managed memory, likewise
	// Waiting is what the reaper has yet to end: memory that was freed (it is live
	// until then), functions of AfterWork.
	Waiting int64
	// Lost is what the driver refused to end several times.
	Lost int64
}

// Usage is memory of one purpose.
type Usage struct {
	Live        int64 // bytes
	Peak        int64 // the most bytes that were live at once
	Allocations int64 // that are live
	Total       int64 // allocations ever made
}

// Stats counts since the GPU was opened; each number is exact, but they are read one
// after the other.
func (d *Device) Stats() Stats {
	return Stats{
		Device: d.usage[onDevice].read(), Host: d.usage[onHost].read(), Managed: d.usage[inManaged].read(),
		Waiting: d.reaper.count.Load(), Lost: d.reaper.lost.Load(),
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
	return Usage{u.live.Load(), u.peak.Load(), u.allocations.Load(), u.total.Load()}
}
