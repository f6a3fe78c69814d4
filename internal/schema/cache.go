package schema

import (
	"sync"
	"sync/atomic"
)

// cache keeps what an import or export of a schema prepared for the next one of the same schema.
// What it keeps is bounded: the number of entries, and the sum of their costs. Finding an entry takes
// no lock. Most schemas are used once, so that an entry is made when a key comes for the second time.
type cache[T any] struct {
	seen  [4 * cacheSlots]atomic.Uint32 // of a key, the upper half
	slots [cacheSlots]atomic.Pointer[cached[T]]

	sync.Mutex     // of all that changes slots
	total      int // the costs of all entries
	hand       int // the slot that is emptied next
}

// cached is an entry of a cache.
type cached[T any] struct {
	key   uint64
	cost  int
	value T
}

const (
	cacheSlots = 64 // a power of two
	// maxCost bounds the costs of all entries of a cache, in structs. A struct of an entry takes some 400
	// bytes, with the schema that it keeps alive. Text counts as a struct for each textCost bytes.
	maxCost  = 1 << 16
	textCost = 256
)

// find returns the entry of a key, or nil.
func (c *cache[T]) find(key uint64) *cached[T] {
	e := c.slots[key%cacheSlots].Load()
	if e == nil || e.key != key {
		return nil
	}
	return e
}

// again reports whether it was called for the key before. It forgets keys.
func (c *cache[T]) again(key uint64) bool {
	seen, half := &c.seen[key%uint64(len(c.seen))], uint32(key>>32)
	if seen.Load() == half {
		return true
	}
	seen.Store(half)
	return false
}

// put adds an entry, instead of those that stand in its way. One that is too large is not kept.
func (c *cache[T]) put(e *cached[T]) {
	if e.cost > maxCost/2 {
		return
	}
	c.Lock()
	defer c.Unlock()
	at := int(e.key % cacheSlots)
	c.empty(at)
	for c.total+e.cost > maxCost {
		c.empty(c.hand)
		c.hand = (c.hand + 1) % cacheSlots
	}
	c.slots[at].Store(e)
	c.total += e.cost
}

func (c *cache[T]) empty(at int) {
	if old := c.slots[at].Swap(nil); old != nil {
		c.total -= old.cost
	}
}

// A hash of words and bytes, to begin with hashStart.
const hashStart = 0x9e3779b97f4a7c15

func hash(h, word uint64) uint64 {
	h = (h ^ word) * 0xff51afd7ed558ccd
	return h ^ h>>29
}
