// Package ordinary knows the memory that allocators of page-locked memory took from an
// ordinary allocator instead. A GPU must not be given its addresses: package cdevice refuses
// to wrap it as page-locked memory.
package ordinary

import (
	"slices"
	"sync"
	"sync/atomic"
)

// span is memory from start up to end.
type span struct{ start, end uintptr }

var known = struct {
	sync.RWMutex
	sorted []span // by address; they do not overlap
	count  atomic.Int64
}{}

// find is the index of the first span that ends behind p. The caller holds the lock.
func find(p uintptr) int {
	i, _ := slices.BinarySearchFunc(known.sorted, p, func(s span, p uintptr) int {
		if s.end <= p {
			return -1
		}
		return 1
	})
	return i
}

// Add adds the range of size bytes at p, until Remove.
func Add(p uintptr, size int) {
	known.Lock()
	defer known.Unlock()
	known.sorted = slices.Insert(known.sorted, find(p), span{p, p + uintptr(size)})
	known.count.Add(1)
}

// Remove removes the range that was added at p.
func Remove(p uintptr) {
	known.Lock()
	defer known.Unlock()
	if i := find(p); i < len(known.sorted) && known.sorted[i].start == p {
		known.sorted = slices.Delete(known.sorted, i, i+1)
		known.count.Add(-1)
	}
}

// Any reports whether there is any range, without a lock.
func Any() bool { return known.count.Load() > 0 }

// Contains reports whether the byte at p is in a range.
func Contains(p uintptr) bool {
	known.RLock()
	defer known.RUnlock()
	i := find(p)
	return i < len(known.sorted) && known.sorted[i].start <= p
}
