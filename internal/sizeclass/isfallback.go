package sizeclass

import (
	"slices"
	"sync"
	"sync/atomic"
)

// span is memory from start up to end.
type span struct{ start, end uintptr }

// fallbacks is the memory of all fallbacks of the process. A GPU must not be given its addresses.
var fallbacks = struct {
	sync.RWMutex
	sorted []span // by address; they do not overlap
	count  atomic.Int64
}{}

// findFallback is the index of the first span that ends behind p. The caller holds the lock.
func findFallback(p uintptr) int {
	i, _ := slices.BinarySearchFunc(fallbacks.sorted, p, func(s span, p uintptr) int {
		if s.end <= p {
			return -1
		}
		return 1
	})
	return i
}

// addFallback adds the range of size bytes at p, until removeFallback.
func addFallback(p uintptr, size int) {
	fallbacks.Lock()
	defer fallbacks.Unlock()
	fallbacks.sorted = slices.Insert(fallbacks.sorted, findFallback(p), span{p, p + uintptr(size)})
	fallbacks.count.Add(1)
}

// removeFallback removes the range that was added at p.
func removeFallback(p uintptr) {
	fallbacks.Lock()
	defer fallbacks.Unlock()
	if i := findFallback(p); i < len(fallbacks.sorted) && fallbacks.sorted[i].start == p {
		fallbacks.sorted = slices.Delete(fallbacks.sorted, i, i+1)
		fallbacks.count.Add(-1)
	}
}

// IsFallback reports whether the byte at p is memory that an allocator with a fallback took from it. Where no such
// memory exists, it takes no lock.
func IsFallback(p uintptr) bool {
	if fallbacks.count.Load() == 0 {
		return false
	}
	fallbacks.RLock()
	defer fallbacks.RUnlock()
	i := findFallback(p)
	return i < len(fallbacks.sorted) && fallbacks.sorted[i].start <= p
}

// Fallbacks returns how many allocations of fallbacks exist in the process.
func Fallbacks() int64 { return fallbacks.count.Load() }
