package cudaalloc

import (
	"sync/atomic"
	"time"
)

// trimmer gives memory back to the driver that was not used for [Limits.IdleAfter]. Its timer
// runs while something is kept.
type trimmer struct {
	armed atomic.Bool
	total atomic.Int64 // allocations of device memory at the last look
}

// keep is called when memory was freed to a cache or a pool.
func (t *trimmer) keep(g *gpu) {
	if t.armed.Load() || t.armed.Swap(true) {
		return
	}
	after := g.own.Limits().IdleAfter
	if after == 0 {
		t.armed.Store(false)
		return
	}
	time.AfterFunc(after, func() { t.look(g) })
}

// look gives back what was not used since the last look.
func (t *trimmer) look(g *gpu) {
	kept := false
	for _, cache := range g.caches {
		if cache != nil {
			cache.TrimUnused()
			kept = kept || cache.Stats().Idle > 0
		}
	}
	total := g.usage[onDevice].total.Load()
	used := t.total.Swap(total) != total
	if g.pool != 0 && !used {
		_ = g.ctx.TrimPool(g.pool) // else it is kept
	}
	t.armed.Store(false)
	if kept || used {
		t.keep(g)
	}
}
