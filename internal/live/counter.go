package live

import (
	"sync/atomic"
	"unsafe"
)

// Counter is a count that many goroutines change: each object counts in the part that its address selects.
type Counter [64]struct {
	atomic.Int64
	_ [56]byte // a cache line for each
}

// Add adds n for an object.
func (c *Counter) Add(of unsafe.Pointer, n int64) { c[uintptr(of)>>7%64].Add(n) }

// Sum returns the sum of the parts.
func (c *Counter) Sum() (n int64) {
	for i := range c {
		n += c[i].Load()
	}
	return n
}
