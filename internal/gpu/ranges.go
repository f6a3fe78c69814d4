package gpu

import (
	"slices"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
)

// ranges is the page-locked memory of all GPUs of a driver that this module knows, so that a copy need not
// ask the driver about each of its sources.
type ranges struct {
	mu     sync.RWMutex
	sorted []span // by address; they do not overlap
}

type span struct {
	start, end device.Ptr
	managed    bool
}

// find is the index of the first range that ends behind p. The caller holds r.mu.
func (r *ranges) find(p device.Ptr) int {
	i, _ := slices.BinarySearchFunc(r.sorted, p, func(s span, p device.Ptr) int {
		if s.end <= p {
			return -1
		}
		return 1
	})
	return i
}

func (r *ranges) add(p device.Ptr, size int64, managed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sorted = slices.Insert(r.sorted, r.find(p), span{p, p + device.Ptr(size), managed})
}

func (r *ranges) remove(p device.Ptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(p); i < len(r.sorted) && r.sorted[i].start == p {
		r.sorted = slices.Delete(r.sorted, i, i+1)
	}
}

func (r *ranges) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sorted = nil
}

func (r *ranges) contain(p device.Ptr, size int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, ok := r.at(p, size)
	return ok
}

// haveBothEnds reports whether both ends of one of the copies are page-locked memory of the host.
func (r *ranges) haveBothEnds(copies []device.Range) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	onHost := func(p device.Ptr, size int64) bool {
		s, ok := r.at(p, size)
		return ok && !s.managed
	}
	for _, c := range copies {
		if c.Size > 0 && onHost(c.Src, c.Size) && onHost(c.Dst, c.Size) {
			return true
		}
	}
	return false
}

// at returns the range that contains size bytes at p. The caller holds r.mu.
func (r *ranges) at(p device.Ptr, size int64) (span, bool) {
	if i := r.find(p); i < len(r.sorted) && r.sorted[i].contains(p, size) {
		return r.sorted[i], true
	}
	return span{}, false
}

func (s span) contains(p device.Ptr, size int64) bool {
	return s.start <= p && p+device.Ptr(size) <= s.end
}
