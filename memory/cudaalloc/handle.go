package cudaalloc

import (
	"context"
	"fmt"
	"sync"
)

// handle is a stream or an event of the driver: owned, or borrowed (then end is
// nil). An owned one lives until it is closed and no wait uses it any more.
type handle struct {
	gpu  *gpu
	kind string // for errors: "stream"
	word uintptr

	mu     sync.Mutex
	end    func() error
	waits  int
	closed bool
}

// Handle returns the native handle: a CUstream or a CUevent.
func (h *handle) Handle() uintptr { return h.word }

// usable is an error once the handle is closed: to the driver, a handle that is gone
// may be another stream's by now.
func (h *handle) usable() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return h.errClosed()
	}
	return nil
}

func (h *handle) errClosed() error {
	return fmt.Errorf("cuda: %s %#x of %s: used after it was closed", h.kind, h.word, h.gpu.own.ID())
}

// Close ends an owned stream once its work is done, and an owned event once no wait
// uses it; it does not wait for that. A borrowed one is left to its owner, and
// can no longer be used through this value. Closing twice is allowed. Where the driver
// fails, the error is returned, and the handle is ended later.
func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.finish()
}

// finish ends the handle if its time has come. The caller holds h.mu.
func (h *handle) finish() error {
	if !h.closed || h.waits > 0 || h.end == nil {
		return nil
	}
	end := h.end
	h.end = nil
	err := end()
	if err != nil {
		h.gpu.deferred.later(h.gpu, end)
	}
	return err
}

func (h *handle) startWait() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return h.errClosed()
	}
	h.waits++
	return nil
}

func (h *handle) endWait() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits--
	_ = h.finish() // it is tried again
}

// wait is [wait] for a handle, which is not ended before it returns.
func (h *handle) wait(ctx context.Context, query func() (bool, error), block func() error) error {
	if err := checkContext("synchronize", ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.startWait(); err != nil {
		return err
	}
	defer h.endWait()
	return wait(ctx, query, block)
}
