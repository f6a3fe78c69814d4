package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// freeTimeout is how long an allocation waits while nothing is freed. A stream that is stuck
// must not make a program hang that allocates.
const freeTimeout = 2 * time.Second

// queuePause is the pause between two tries of an allocation while another one reclaims memory. There
// may be many, which must not keep the driver busy with calls that it refuses.
const queuePause = 10 * time.Millisecond

// mostWaiting is how many frees and functions may wait, of any size: each of them takes memory of the
// process.
const mostWaiting = 1 << 16

// pushBack waits while more bytes than the limit, or too many frees, wait: a program that allocates and
// frees faster than the GPU works must be slowed down.
func (h *Heap) pushBack(ctx context.Context, kind device.MemoryKind, size int64) error {
	limit := h.limits.waiting.Load()
	enough := func() bool { return h.deferred.bytes.Load() <= limit && h.deferred.count.Load() <= mostWaiting }
	if enough() {
		return nil
	}
	err := h.waitForFrees(ctx, time.Now(), 0, func() bool {
		h.deferred.sweep()
		return enough()
	})
	if err != nil {
		why := fmt.Errorf("Limits.Waiting is %d bytes, and at most %d frees may wait: %w", limit, mostWaiting, err)
		return h.noMemory(kind, size, why, cuda.PublicCode(cuda.OutOfMemory))
	}
	return nil
}

// reclaim retries an allocation for which the driver has no memory: after giving cached memory
// back, and as pending work that uses freed memory ends. One allocation at a time gives memory
// back; the others only retry now and then.
func (h *Heap) reclaim(ctx context.Context, kind device.MemoryKind, size int64, refused error, take func() error) error {
	started := time.Now()
	mine := false
	err := h.waitForFrees(ctx, started, queuePause, func() bool {
		select {
		case h.reclaiming <- struct{}{}:
			mine = true
			return true
		default:
		}
		refused = take()
		return !isOutOfMemory(refused)
	})
	if mine {
		defer func() { <-h.reclaiming }()
		refused, err = h.trimUntil(ctx, started, refused, take)
	}
	if err != nil {
		return h.noMemory(kind, size, err, refused)
	}
	return refused
}

// trimUntil gives cached memory back until the allocation no longer fails for lack of memory,
// or no pending free is left. Only one goroutine calls it at a time.
func (h *Heap) trimUntil(ctx context.Context, started time.Time, before error, take func() error,
) (refused, gaveUp error) {
	refused = before
	bounded, cancel := context.WithTimeout(ctx, freeTimeout)
	if h.trims.run(bounded, &h.deferred.guard) != nil { // one of them waits: the caches may hold more
		started = time.Now()
	}
	cancel()
	if err := ctx.Err(); err != nil {
		return refused, err
	}
	// Memory that was freed in stream order is free once its stream got there.
	idle := h.deferred.mark()
	gaveUp = h.waitForFrees(ctx, started, 0, func() bool {
		h.deferred.sweep()
		// Not before it can be freed: other allocations may use it until then.
		// mutant: ended := isClosed(idle) || h.deferred.count.Load() >= 0
		ended := isClosed(idle) && h.deferred.count.Load() == 0
		if isClosed(idle) && h.keeps() {
			h.trimCaches()
			idle, ended = h.deferred.mark(), false
		}
		if h.pool != 0 {
			_ = h.ctx.TrimPool(h.pool) // an error changes nothing: the allocation reports it
		}
		refused = take()
		return ended || !isOutOfMemory(refused)
	})
	return refused, gaveUp
}

var errNothingFreed = errors.New("nothing was freed for a while")

// noMemory is the error of an allocation that waited in vain.
func (h *Heap) noMemory(kind device.MemoryKind, size int64, why, refused error) error {
	return fmt.Errorf("cuda: allocate %d bytes on %s: %d bytes that were freed wait for pending work of the GPU: %w: %w",
		size, h.ID(kind), h.deferred.bytes.Load(), why, refused)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitForFrees calls enough now and then, not before least has passed, until it returns true. It
// gives up when ctx is done, or when nothing was freed for too long since the allocation started.
func (h *Heap) waitForFrees(ctx context.Context, started time.Time, least time.Duration, enough func() bool) error {
	h.deferred.needed.Add(1)
	defer h.deferred.needed.Add(-1)
	pause := backoff{least: least}
	for !enough() {
		if err := pause.sleep(ctx); err != nil {
			return err
		}
		if freed := h.deferred.freedAt(); time.Since(started) > freeTimeout && time.Since(freed) > freeTimeout {
			return errNothingFreed
		}
	}
	return nil
}
