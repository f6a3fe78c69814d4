package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// ErrClosed is wrapped by the errors of a stream or an event that is used after it was closed.
var ErrClosed = errors.New("used after it was closed")

// Handle is a stream or an event of the driver: owned, or borrowed (then end is
// nil). An owned one lives until it is closed and no wait uses it any more.
type Handle struct {
	deferred *Deferred
	kind     string // for errors: "stream"
	word     uintptr

	mu     sync.Mutex
	end    func() error
	waits  int
	closed bool
}

// Borrow makes h a handle that another library owns. kind is "stream" or "event".
func (h *Handle) Borrow(d *Deferred, kind string, word uintptr) {
	h.deferred, h.kind, h.word = d, kind, word
}

func (h *Handle) own(d *Deferred, kind string, word uintptr, end func() error) {
	h.Borrow(d, kind, word)
	h.end = end
}

// Word returns the native handle: a CUstream or a CUevent.
func (h *Handle) Word() uintptr { return h.word }

func (h *Handle) ctx() *cuda.Context { return h.deferred.ctx }

// Usable is an error once the handle is closed: to the driver, a handle that is gone
// may be another stream's by now.
func (h *Handle) Usable() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return h.errClosed()
	}
	return nil
}

func (h *Handle) errClosed() error {
	return fmt.Errorf("cuda: %s %#x of %s: %w", h.kind, h.word, h.ctx(), ErrClosed)
}

// Close ends an owned stream once its work is done, and an owned event once no wait
// uses it; it does not wait for that. A borrowed one is left to its owner, and
// can no longer be used through this value. Closing twice is allowed. Where the driver
// fails, the error is returned, and the handle is ended later.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.finish()
}

// finish ends the handle if it is closed and no wait uses it. The caller holds h.mu.
func (h *Handle) finish() error {
	if !h.closed || h.waits > 0 || h.end == nil {
		return nil
	}
	end := h.end
	h.end = nil
	err := end()
	if err != nil {
		h.deferred.later(end)
	}
	return err
}

func (h *Handle) startWait() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return h.errClosed()
	}
	h.waits++
	return nil
}

func (h *Handle) endWait() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits--
	_ = h.finish() // it is tried again
}

// wait is [wait] for a handle, which is not ended before it returns.
func (h *Handle) wait(ctx context.Context, query func() (bool, error), block func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.startWait(); err != nil {
		return err
	}
	defer h.endWait()
	return wait(ctx, query, block)
}

// QueryEvent reports whether the work before the latest record of the event has completed.
func (h *Handle) QueryEvent() (bool, error) {
	if err := h.Usable(); err != nil {
		return false, err
	}
	return h.ctx().QueryEvent(h.word)
}

// SynchronizeEvent waits until the event is complete, or ctx is done.
func (h *Handle) SynchronizeEvent(ctx context.Context) error {
	return h.wait(ctx, h.QueryEvent, func() error {
		// The driver would put the thread to sleep.
		done, err := pollBusily(ctx, func() (bool, error) { return h.ctx().QueryEvent(h.word) })
		if done || err != nil {
			return err
		}
		return h.ctx().SynchronizeEvent(h.word)
	})
}

// QueryStream reports whether all work enqueued on the stream so far has completed.
func (h *Handle) QueryStream() (bool, error) {
	if err := h.Usable(); err != nil {
		return false, err
	}
	return h.ctx().QueryStream(h.word)
}

// SynchronizeStream waits until all work enqueued on the stream so far has completed, or ctx is done.
func (h *Handle) SynchronizeStream(ctx context.Context) error {
	return h.wait(ctx, h.QueryStream, func() error { return h.ctx().SynchronizeStream(h.word) })
}

// awaited is an event that a wait of its own keeps.
type awaited struct{ *Handle }

// Await is evidence that the work before an event is done. The event is kept until then.
func (h *Handle) Await() (Evidence, error) { return awaited{h}, h.startWait() }

func (e awaited) reached(key keep.Key) (bool, error) { return e.ctx().QueryEventFor(e.word, key) }
func (e awaited) letGo()                             { e.endWait() }

// Defer ends an item when the event is complete: on this goroutine, if it is already. If the event is
// closed, it proves nothing, and the item ends after all work of the GPU.
func (h *Handle) Defer(one *Deferral) {
	one.giveBack(h.ctx())
	if h.startWait() == nil {
		h.deferred.whenReached(one, awaited{h})
		return
	}
	h.deferred.add(one)
}
