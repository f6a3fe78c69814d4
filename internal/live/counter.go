package live

import (
	"sync/atomic"
	"unsafe"
)

// Counter is a count that many goroutines change: each in a part of its own, as Near selects it.
type Counter [1 << partBits]struct {
	begun, ended atomic.Int64
	_            [112]byte // processors fetch cache lines in pairs
}

const partBits = 7

// Add adds n.
func (c *Counter) Add(n int64) {
	part := &c[Near(partBits)]
	if n < 0 {
		part.ended.Add(n)
	} else {
		part.begun.Add(n)
	}
}

// Sum returns the count. It may overcount objects that begin or end meanwhile, and never undercounts: an object whose
// end was read had begun before.
func (c *Counter) Sum() (n int64) {
	for i := range c {
		n += c[i].ended.Load()
	}
	for i := range c {
		n += c[i].begun.Load()
	}
	return n
}

// Near returns a number of so many bits that the address of the goroutine's stack selects: the same one as long as the
// goroutine calls it at one depth, and rarely that of another goroutine. What it selects is then in the processor's cache.
func Near(bits uint) uint64 {
	const spread = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // two stacks are 2 KiB apart, at least
	return stack * spread >> (64 - bits)
}
