package gpu

import (
	"sync"
	"sync/atomic"
	"time"
)

// trimmer frees cached memory that was not used for Limits.IdleAfter. Its timer
// runs while something is kept.
type trimmer struct {
	armed atomic.Bool // the timer runs
	mu    sync.Mutex
	timer *time.Timer
	total int64 // allocations of device memory at the last look
}

// keep is called when memory was freed to a cache or a pool.
func (t *trimmer) keep(h *Heap) {
	if !t.armed.Load() {
		t.arm(h)
	}
}

// arm starts the timer, unless it runs or there is no time after which memory goes back.
func (t *trimmer) arm(h *Heap) {
	after := h.Limits().IdleAfter
	t.mu.Lock()
	defer t.mu.Unlock()
	if after > 0 && !t.armed.Load() {
		t.armed.Store(true)
		t.timer = time.AfterFunc(after, func() { t.look(h) })
	}
}

// changed starts the timer anew, because the time has changed.
func (t *trimmer) changed(h *Heap) {
	t.mu.Lock()
	if t.armed.Load() && t.timer.Stop() {
		t.armed.Store(false)
	}
	t.mu.Unlock()
	if h.usage[onDevice].total.Load() > 0 || h.keeps() {
		t.arm(h)
	}
}

// look frees memory that was not used since its last call.
func (t *trimmer) look(h *Heap) {
	for _, cache := range h.caches {
		if cache != nil {
			cache.TrimUnused()
		}
	}
	total := h.usage[onDevice].total.Load()
	t.mu.Lock()
	used := t.total != total
	t.total = total
	t.armed.Store(false)
	t.mu.Unlock()
	if h.pool != 0 && !used {
		_ = h.ctx.TrimPool(h.pool) // else it is kept
	}
	if used || h.keeps() {
		t.arm(h)
	}
}
