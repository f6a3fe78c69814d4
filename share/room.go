package share

import (
	"fmt"
	"sync"
	"time"
)

// room counts the bytes of an [Allocator], which has a limit.
type room struct {
	limit int64 // 0: none

	mu      sync.Mutex
	used    int64
	leaving int64         // of used: bytes that were freed, and have not ended
	changed chan struct{} // closed when some have ended; nil if nobody waits
}

// standstill is how long an allocation waits while no freed memory ends.
const standstill = 2 * time.Second

// take takes bytes. Where freed memory will make room, it waits for that.
func (r *room) take(bytes int64) error {
	for {
		changed, err := r.tryTake(bytes)
		if changed == nil {
			return err
		}
		timer := time.NewTimer(standstill)
		select {
		// mutant: case <-changed: return err
		case <-changed:
			timer.Stop()
		case <-timer.C:
			return err
		}
	}
}

// tryTake takes bytes, or returns an error, and what to wait for if that may help.
func (r *room) tryTake(bytes int64) (changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// mutant: if r.limit <= 0 || r.used-r.leaving+bytes <= r.limit {
	if r.limit <= 0 || bytes <= r.limit-r.used {
		r.used += bytes
		return nil, nil
	}
	if bytes > r.limit-(r.used-r.leaving) {
		return nil, fmt.Errorf("%d bytes are in use, of at most %d", r.used-r.leaving, r.limit)
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed, fmt.Errorf("%d bytes are in use, of at most %d, and %d that were freed wait for work of the GPU", r.used-r.leaving, r.limit, r.leaving)
}

// give gives bytes back that were taken.
func (r *room) give(bytes int64) {
	r.leave(bytes)
	r.left(bytes)
}

// leave announces bytes that will be given back.
func (r *room) leave(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving += bytes
}

// left gives back bytes that were announced.
func (r *room) left(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= bytes
	r.leaving -= bytes
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

func (r *room) taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
