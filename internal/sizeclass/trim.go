package sizeclass

// SetLimits changes the limits, and frees idle slabs above them.
func (c *Cache) SetLimits(limits Limits) {
	c.mu.Lock()
	c.limits = limits.normal()
	c.wake()
	dropped := c.excess()
	c.mu.Unlock()
	c.release(dropped)
}

// Trim frees all idle slabs, on this goroutine.
func (c *Cache) Trim() {
	c.mu.Lock()
	dropped := c.shrink(0)
	c.mu.Unlock()
	c.release(dropped)
}

// TrimUnused frees the idle slabs that were not in use since its last call, on this
// goroutine. It is cheap where there are none.
func (c *Cache) TrimUnused() {
	var dropped list
	c.mu.Lock()
	for class := range c.wholes {
		for {
			p := c.wholes[class].first
			if p == nil || p.slab.epoch == c.epoch {
				break
			}
			c.drop(p, &dropped)
		}
	}
	c.epoch++
	c.mu.Unlock()
	c.release(dropped)
}

// used returns the bytes of slabs that are in use or being allocated.
func (c *Cache) used() int64 { return c.stats.Held - c.leaving - c.idle }

// excess removes idle memory above the limits from the cache.
func (c *Cache) excess() list {
	return c.shrink(min(c.limits.Idle, c.limits.Total-c.used()))
}

// shrink drops idle slabs until at most keep bytes are idle: the largest first, of one
// size those that are idle for longest. The caller releases them.
func (c *Cache) shrink(keep int64) (dropped list) {
	for class := classes - 1; class >= 0 && c.idle > keep; class-- {
		for c.idle > keep && c.wholes[class].first != nil {
			c.drop(c.wholes[class].first, &dropped)
		}
	}
	return dropped
}

// drop moves an idle slab to the list of those to be released.
func (c *Cache) drop(whole *piece, dropped *list) {
	c.takeIdle(whole)
	c.leaving += sizeOf(whole.class)
	dropped.push(whole)
}

// release frees removed memory. It is called without the lock, because the source may block.
func (c *Cache) release(dropped list) {
	for p := dropped.first; p != nil; p = p.next {
		size := sizeOf(p.class)
		c.source.Free(p.ptr, size)
		c.mu.Lock()
		c.leaving -= size
		c.stats.Held -= size
		c.wake()
		c.mu.Unlock()
	}
}
