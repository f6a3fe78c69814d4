package gpu

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Limits are those of cudaalloc.Limits, and mean the same.
type Limits struct {
	PinnedIdle, ManagedIdle, DeviceIdle int64
	Waiting                             int64
	IdleAfter                           time.Duration
}

// limits are those of a GPU.
type limits struct {
	mu      sync.Mutex
	now     Limits
	waiting atomic.Int64
}

// idleLimit is a limit of Limits as one of a cache, where 0 is none.
func idleLimit(bytes int64) int64 {
	if bytes == 0 {
		return -1
	}
	return bytes
}

// Limits returns the limits of the GPU.
func (h *Heap) Limits() Limits {
	h.limits.mu.Lock()
	defer h.limits.mu.Unlock()
	return h.limits.now
}

// SetLimits changes the limits, which are not negative, and gives cached memory beyond them back to the
// driver. It does not wait.
func (h *Heap) SetLimits(l Limits) error {
	if err := h.setLimits(l); err != nil {
		return err
	}
	h.trimmer.changed(h)
	return nil
}

func (h *Heap) setLimits(l Limits) error {
	h.limits.mu.Lock()
	defer h.limits.mu.Unlock()
	if h.pool != 0 {
		if err := h.ctx.SetReleaseThreshold(h.pool, l.DeviceIdle); err != nil {
			return err
		}
	}
	h.limits.now = l
	h.limits.waiting.Store(l.Waiting)
	for purpose, idle := range [purposes]int64{onDevice: l.DeviceIdle, onHost: l.PinnedIdle, inManaged: l.ManagedIdle} {
		if cache := h.caches[purpose]; cache != nil {
			cache.SetLimits(sizeclass.Limits{Idle: idleLimit(idle)})
		}
	}
	return nil
}
