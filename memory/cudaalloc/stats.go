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

// String returns what is not zero, on one line, and "nothing" if all is:
//
//	device 4 KiB in 1 allocation (peak 1.5 MiB, 7 ever), pinned none (peak 64 KiB, 1 ever), 2 waiting with 8 KiB
func (s Stats) String() string {
	var parts []string
	for _, kind := range []struct {
		name  string
		usage Usage
	}{
		{"device", s.Device}, {"pinned", s.Pinned}, {"managed", s.Managed}, {"opened", s.Opened}, {"registered", s.Registered},
	} {
		if kind.usage != (Usage{}) {
			parts = append(parts, kind.name+" "+kind.usage.String())
		}
	}
	if s.Waiting != 0 || s.WaitingBytes != 0 {
		parts = append(parts, fmt.Sprintf("%d waiting with %s", s.Waiting, size(s.WaitingBytes)))
	}
	if s.Lost != 0 {
		parts = append(parts, fmt.Sprintf("%d lost", s.Lost))
	}
	if s.CallbackPanics != 0 {
		parts = append(parts, fmt.Sprintf("%d panics of callbacks", s.CallbackPanics))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
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

// String returns what is not zero, "4 KiB in 1 allocation (peak 1.5 MiB, 7 ever, 64 KiB held, 60 KiB cached)", and
// "nothing" if all is.
func (u Usage) String() string {
	if u == (Usage{}) {
		return "nothing"
	}
	text := "none"
	if u.Live != 0 || u.Allocations != 0 {
		text = fmt.Sprintf("%s in %d allocation%s", size(u.Live), u.Allocations, plural(u.Allocations))
	}
	var more []string
	add := func(n int64, form string, value any) {
		if n != 0 {
			more = append(more, fmt.Sprintf(form, value))
		}
	}
	add(u.Peak, "peak %s", size(u.Peak))
	add(u.Total, "%d ever", u.Total)
	add(u.Held, "%s held", size(u.Held))
	add(u.Cached, "%s cached", size(u.Cached))
	if len(more) == 0 {
		return text
	}
	return text + " (" + strings.Join(more, ", ") + ")"
}

func plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// size is a number of bytes: "1.5 MiB".
func size(bytes int64) string {
	const units = "KMG"
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for ; value >= 1<<10 && unit < len(units)-1; unit++ {
		value /= 1 << 10
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + units[unit:unit+1] + "iB"
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
