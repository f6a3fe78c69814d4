package share

import (
	"fmt"
	"sync"
	"time"
)

// quota counts the bytes of an [Allocator], which may have a limit.
type quota struct {
	limit int64 // 0: none

	mu      sync.Mutex
	used    int64
	freeing int64         // the part of used that was freed and is still page-locked
	changed chan struct{} // closed when some of freeing becomes free; nil if no call waits
}

// stallTimeout is how long an allocation waits while no freed memory is unlocked.
const stallTimeout = 2 * time.Second

// reserve takes bytes from the quota. If freed memory will make room, it waits for that.
func (q *quota) reserve(bytes int64) error {
	for {
		changed, err := q.tryReserve(bytes)
		if changed == nil {
			return err
		}
		timer := time.NewTimer(stallTimeout)
		select {
		// mutant: case <-changed: return err
		case <-changed:
			timer.Stop()
		case <-timer.C:
			return err
		}
	}
}

// tryReserve takes bytes, or returns an error, and a channel to wait for if freed memory will make room.
func (q *quota) tryReserve(bytes int64) (changed <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// mutant: if q.limit <= 0 || q.used-q.freeing+bytes <= q.limit {
	if q.limit <= 0 || bytes <= q.limit-q.used {
		q.used += bytes
		return nil, nil
	}
	if bytes > q.limit-(q.used-q.freeing) {
		return nil, fmt.Errorf("%w: %d bytes are in use, of at most %d", ErrLimit, q.used-q.freeing, q.limit)
	}
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed, fmt.Errorf("%w: %d bytes are in use, of at most %d, and %d that were freed wait for work of the GPU",
		ErrLimit, q.used-q.freeing, q.limit, q.freeing)
}

// release returns bytes to the quota.
func (q *quota) release(bytes int64) {
	q.beginFree(bytes)
	q.endFree(bytes)
}

// beginFree announces that bytes will be returned.
func (q *quota) beginFree(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.freeing += bytes
}

// endFree returns bytes that beginFree has announced.
func (q *quota) endFree(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used -= bytes
	q.freeing -= bytes
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

func (q *quota) stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Held: q.used, Freeing: q.freeing}
}
