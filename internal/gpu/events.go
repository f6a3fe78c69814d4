package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// Events keeps events for their next use: making one is a call of the driver. Those on the list
// are complete, which to the driver is the same as never recorded.
type Events struct {
	ctx      *cuda.Context
	deferred *Deferred
	backlog  *Backlog

	mu   sync.Mutex
	free []uintptr
}

const maxFreeEvents = 256

// New makes h an owned event from the list, or a new one.
func (l *Events) New(h *Handle) error {
	word, err := l.take()
	if err != nil {
		return err
	}
	h.own(l.deferred, "event", word, func() error { return l.put(word) })
	return nil
}

// Borrow makes h an event that another library owns.
func (l *Events) Borrow(h *Handle, word uintptr) { h.Borrow(l.deferred, "event", word) }

// NewForIPC makes h an owned event, and returns the handle by which other processes open it.
func (l *Events) NewForIPC(h *Handle) (cuda.Handle, error) {
	word, err := l.ctx.NewSharedEvent()
	if err != nil {
		return cuda.Handle{}, err
	}
	l.ownForIPC(h, word)
	handle, err := l.ctx.EventHandle(word)
	if err != nil {
		return cuda.Handle{}, errors.Join(err, h.Close())
	}
	return handle, nil
}

// OpenForIPC makes h the event of another process.
func (l *Events) OpenForIPC(h *Handle, handle cuda.Handle) error {
	word, err := l.ctx.OpenEvent(handle)
	if err != nil {
		return err
	}
	l.ownForIPC(h, word)
	return nil
}

// ownForIPC makes h an owned event that is destroyed when it is closed: it is not for the list.
func (l *Events) ownForIPC(h *Handle, word uintptr) {
	h.own(l.deferred, "event", word, func() error { return l.ctx.FreeEvent(word) })
}

func (l *Events) take() (uintptr, error) {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		h := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		l.ctx.HandOut(device.Ptr(h), 0)
		return h, nil
	}
	l.mu.Unlock()
	return l.ctx.NewEvent()
}

// put ends a use of the event. One that is pending, or for which the driver returns an error, is
// destroyed: its next user would wait for the work of another.
func (l *Events) put(h uintptr) error {
	if done, err := l.ctx.QueryEventFor(h, 0); err == nil && done {
		l.mu.Lock()
		if len(l.free) < maxFreeEvents {
			l.ctx.Keep(device.Ptr(h), 0)
			l.free = append(l.free, h)
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
	}
	return l.ctx.FreeEvent(h)
}

// drain destroys the handles on the list, after the work of the GPU.
func (l *Events) drain() {
	l.mu.Lock()
	free := l.free
	l.free = nil
	l.mu.Unlock()
	for _, h := range free {
		l.deferred.later(func() error { return l.ctx.FreeEvent(h) })
	}
}

// SharedEvent is an event of the list that several parties hold; the last one puts
// it back.
type SharedEvent struct {
	events *Events
	word   uintptr
	refs   atomic.Int32
}

// record returns an event behind the work on the stream, which the caller holds.
func (l *Events) record(stream uintptr) (*SharedEvent, error) {
	return l.recordBy(admission{}, stream)
}

func (l *Events) recordBy(admit admission, stream uintptr) (*SharedEvent, error) {
	e := &SharedEvent{events: l}
	e.refs.Store(1)
	err := admit.enqueue(l.backlog, stream, callCost, func() (err error) {
		e.word, err = l.recordWord(stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// recordWord takes an event from the list, and records it on the stream.
func (l *Events) recordWord(stream uintptr) (uintptr, error) {
	word, err := l.take()
	if err != nil {
		return 0, err
	}
	if err := l.ctx.Record(word, stream); err != nil {
		l.release(word)
		return 0, err
	}
	return word, nil
}

// mayUse reports whether work may be enqueued on the stream: not on the legacy default
// stream while a stream is being captured that is ordered with it, since that invalidates
// the capture.
func (l *Events) mayUse(stream uintptr) bool {
	if stream != 0 && stream != cuda.LegacyStream {
		return true
	}
	busy, err := l.ctx.Capturing(nil)
	return !busy && !isCapture(err)
}

func (e *SharedEvent) reached(key keep.Key) (bool, error) {
	return e.events.ctx.QueryEventFor(e.word, key)
}

// await waits for the event, and lets it go.
func (e *SharedEvent) await(ctx context.Context) error {
	defer e.letGo()
	if err := poll(ctx, func() (bool, error) { return e.reached(0) }); err != nil {
		return fmt.Errorf("wait for the stream: %w", err)
	}
	return nil
}

// release is put, with another try later where the driver fails.
func (l *Events) release(word uintptr) {
	if l.put(word) != nil {
		l.deferred.later(func() error { return l.ctx.FreeEvent(word) })
	}
}

// letGo is drop, with another try later where the driver fails.
func (e *SharedEvent) letGo() {
	if e.refs.Add(-1) == 0 {
		e.events.release(e.word)
	}
}

func (e *SharedEvent) drop() error {
	if e.refs.Add(-1) > 0 {
		return nil
	}
	return e.events.put(e.word)
}

// MoveTo makes h an owned event of the caller's hold on e.
func (e *SharedEvent) MoveTo(h *Handle) { h.own(e.events.deferred, "event", e.word, e.drop) }
