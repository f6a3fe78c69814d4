package cudaalloc

import (
	"slices"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
)

// ranges is the page-locked memory that this package knows, so that a copy need not
// ask the driver about each of its sources.
type ranges struct {
	mu     sync.RWMutex
	sorted []span // by address; they do not overlap
}

type span struct{ start, end device.Ptr }

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

func (r *ranges) add(p device.Ptr, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sorted = slices.Insert(r.sorted, r.find(p), span{p, p + device.Ptr(size)})
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
	i := r.find(p)
	return i < len(r.sorted) && r.sorted[i].start <= p && p+device.Ptr(size) <= r.sorted[i].end
}
