package gpu

// These functions are for tests of this package and of package cudaalloc.

// Forget has the GPU opened again by the next Open.
func (p *Platform) Forget(g *GPU) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gpus, int64(g.Ctx.Ordinal()))
}

// Poll returns when all events that items wait for have been queried, and the functions behind those that were complete
// have been called.
func (d *Deferred) Poll() {
	d.sweeping.Lock()
	d.sweepAll()
	d.sweeping.Unlock()
	called := make(chan struct{})
	d.call(func() { close(called) })
	<-called
}

// Ending reports whether a call may be made now that waits for the GPU, though the GPU was idle when that was asked. If it
// is false while the GPU has work, there will be no such call before that work is done.
func (d *Deferred) Ending() bool { return d.ending.Load() }

// ForgetLost sets the number of lost items to zero.
func (d *Deferred) ForgetLost() { d.lost.Store(0) }

// CountItems adds n to the number of items that wait.
func (d *Deferred) CountItems(n int64) { d.count.Add(n) }

// ForgetLost sets the numbers of device memory and of registered memory to zero.
func (h *Heap) ForgetLost() {
	h.usage[onDevice].forget()
	h.registered.forget()
}

// Reclaiming reports whether an allocation is giving cached memory back.
func (h *Heap) Reclaiming() bool { return len(h.reclaiming) > 0 }

// Ask takes the streams to ask about a capture, until asked is called.
func (l *Streams) Ask() (asked func()) {
	_ = l.ask()
	return l.asked
}

// BetweenCopies has f called after each copy out of staging memory that is enqueued.
func (g *Staging) BetweenCopies(f func()) { g.between = f }

// Staged returns the bytes that are reserved, and on how many streams.
func (g *Staging) Staged() (bytes int64, streams int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bytes, len(g.streams)
}

// Streams returns of how many streams the work is counted.
func (b *Backlog) Streams() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.streams)
}
