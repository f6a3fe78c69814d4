package cudaalloc

import (
	"sync"
	"sync/atomic"
	"time"
)

// trimmer gives memory back to the driver that was not used for [Limits.IdleAfter]. Its timer
// runs while something is kept.
type trimmer struct {
	armed atomic.Bool // the timer runs
	mu    sync.Mutex
	timer *time.Timer
	total int64 // allocations of device memory at the last look
}

// keep is called when memory was freed to a cache or a pool.
func (t *trimmer) keep(g *gpu) {
	if !t.armed.Load() {
		t.arm(g)
	}
}

// arm starts the timer, unless it runs or there is no time after which memory goes back.
func (t *trimmer) arm(g *gpu) {
	after := g.own.Limits().IdleAfter
	t.mu.Lock()
	defer t.mu.Unlock()
	if after > 0 && !t.armed.Load() {
		t.armed.Store(true)
		t.timer = time.AfterFunc(after, func() { t.look(g) })
	}
}

// changed starts the timer anew, because the time has changed.
func (t *trimmer) changed(g *gpu) {
	t.mu.Lock()
	if t.armed.Load() && t.timer.Stop() {
		t.armed.Store(false)
	}
	t.mu.Unlock()
	if g.usage[onDevice].total.Load() > 0 || g.keeps() {
		t.arm(g)
	}
}

// keeps reports whether a cache keeps anything.
func (g *gpu) keeps() bool {
	for _, cache := range g.caches {
		if cache != nil && cache.Stats().Idle > 0 {
			return true
		}
	}
	return false
}

// look gives back memory that was not used since its last call.
func (t *trimmer) look(g *gpu) {
	for _, cache := range g.caches {
		if cache != nil {
			cache.TrimUnused()
		}
	}
	total := g.usage[onDevice].total.Load()
	t.mu.Lock()
	used := t.total != total
	t.total = total
	t.armed.Store(false)
	t.mu.Unlock()
	if g.pool != 0 && !used {
		_ = g.ctx.TrimPool(g.pool) // else it is kept
	}
	if used || g.keeps() {
		t.arm(g)
	}
}
