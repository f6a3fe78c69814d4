package items

import "sync/atomic"

// Countdown calls a function when its last part is over.
type Countdown struct {
	left atomic.Int64
	Last func()
}

// Init sets the number of parts, and the function that the end of the last one calls.
func (c *Countdown) Init(parts int64, last func()) {
	c.left.Store(parts)
	c.Last = last
}

// Add adds a part, unless the last one is over.
func (c *Countdown) Add() bool {
	for {
		left := c.left.Load()
		if left == 0 {
			return false
		}
		if c.left.CompareAndSwap(left, left+1) {
			return true
		}
	}
}

// Part ends a part. On a nil Countdown it does nothing.
func (c *Countdown) Part() {
	if c != nil && c.left.Add(-1) == 0 {
		c.Last()
	}
}
