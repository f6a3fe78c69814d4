package cudaalloc

import (
	"fmt"
	"strings"

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

// String lists what is not zero, in one line: "device: 4.0 KiB live in 2 allocations, 1.0 MiB cached; 1 lost".
func (s Stats) String() string {
	var parts []string
	for i, of := range []Usage{s.Device, s.Pinned, s.Managed, s.Opened, s.Registered} {
		if of != (Usage{}) {
			parts = append(parts, [...]string{"device", "pinned", "managed", "opened", "registered"}[i]+": "+of.String())
		}
	}
	if s.Waiting != 0 {
		parts = append(parts, fmt.Sprintf("%d waiting with %s", s.Waiting, bytesOf(s.WaitingBytes)))
	}
	if s.Lost != 0 {
		parts = append(parts, fmt.Sprintf("%d lost", s.Lost))
	}
	if s.CallbackPanics != 0 {
		parts = append(parts, fmt.Sprintf("%d callback panics", s.CallbackPanics))
	}
	if len(parts) == 0 {
		return "nothing allocated"
	}
	return strings.Join(parts, "; ")
}

// String lists what is not zero, in one line.
func (u Usage) String() string {
	var parts []string
	if u.Live != 0 || u.Allocations != 0 {
		parts = append(parts, fmt.Sprintf("%s live in %d allocations", bytesOf(u.Live), u.Allocations))
	}
	for i, n := range []int64{u.Cached, u.Held, u.Peak} {
		if n != 0 {
			parts = append(parts, bytesOf(n)+[...]string{" cached", " held", " at the peak"}[i])
		}
	}
	if u.Total != 0 {
		parts = append(parts, fmt.Sprintf("%d allocations ever", u.Total))
	}
	if len(parts) == 0 {
		return "nothing allocated"
	}
	return strings.Join(parts, ", ")
}

// bytesOf returns a number of bytes in the largest unit of which there is one.
func bytesOf(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for ; value >= 1<<10 && unit < 3; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[unit])
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
