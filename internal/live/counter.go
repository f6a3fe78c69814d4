package live

import (
	"sync/atomic"
	"unsafe"
)

// Counter is a count that many goroutines change: each in a part that the address of its stack selects, so
// that two that count at the same time rarely share a cache line. A part may be below zero.
type Counter [parts]struct {
	atomic.Int64
	_ [120]byte // processors fetch cache lines in pairs
}

const (
	partBits = 7
	parts    = 1 << partBits
)

// Add adds n.
func (c *Counter) Add(n int64) {
	const spread = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // two stacks are 2 KiB apart, at least
	c[stack*spread>>(64-partBits)].Add(n)
}

// Sum returns the sum of the parts.
func (c *Counter) Sum() (n int64) {
	for i := range c {
		n += c[i].Load()
	}
	return n
}
