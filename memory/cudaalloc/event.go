package cudaalloc

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Event is a CUevent: a device.Event. It has no timing, and a wait for it that blocks in the
// driver sleeps.
type Event struct{ handle }

// NewEvent returns an owned event from the free list, or a new one. Those on the list
// are complete, which to the driver is the same as never recorded.
func (d *Device) NewEvent() (device.Event, error) {
	h, err := d.events.take(d.ctx)
	if err != nil {
		return nil, err
	}
	return &Event{handle{gpu: d.gpu, kind: "event", word: h, end: func() error { return d.events.put(d.ctx, h) }}}, nil
}

// WrapEvent borrows a CUevent (or cudaEvent_t) that another library owns, and that lives for
// as long as it is used here.
func (d *Device) WrapEvent(word uintptr) (device.Event, error) {
	if word == 0 {
		return nil, errNoEvent
	}
	return &Event{handle{gpu: d.gpu, kind: "event", word: word}}, nil
}

// Query reports whether the work before the latest Record has completed. It does not wait.
func (e *Event) Query() (bool, error) {
	if err := e.usable(); err != nil {
		return false, err
	}
	return e.gpu.ctx.QueryEvent(e.word)
}

// Synchronize waits until the latest recorded point is reached, or ctx is done; see
// [Stream.Synchronize].
func (e *Event) Synchronize(ctx context.Context) error {
	return e.wait(ctx, e.Query, func() error { return e.gpu.ctx.SynchronizeEvent(e.word) })
}

// OnComplete calls f when the latest recorded point is reached: on this goroutine, if it
// is already, or later on one of this package. See [Device.AfterWork] for what f may do. An
// event of another owner must live until then. Where the event is closed, or the driver cannot
// be asked about it, f is called after all work of the GPU. A nil f panics.
func (e *Event) OnComplete(f func()) {
	if f == nil {
		panic(absent("OnComplete", "f", "a function"))
	}
	e.onComplete(&deferral{call: f})
}

func (e *Event) onComplete(one *deferral) {
	one.giveBack(e.gpu)
	if e.startWait() == nil { // otherwise it is closed, and proves nothing
		after := awaited{e}
		if done, err := after.reached(one.key); done && err == nil {
			after.letGo()
			one.run(e.gpu, func() {})
			return
		}
		one.after = after
	}
	e.gpu.deferred.add(e.gpu, one)
}

// awaited is an event that a wait of its own keeps.
type awaited struct{ *Event }

// await is evidence of an event that may be of another implementation, or closed.
func await(e device.Event) (evidence, error) {
	own, ok := e.(*Event)
	if !ok {
		return nil, errForeignEvent
	}
	if own == nil {
		return nil, errNoEvent
	}
	return awaited{own}, own.startWait()
}

func (e awaited) reached(key cuda.Key) (bool, error) { return e.gpu.ctx.QueryEventFor(e.word, key) }
func (e awaited) letGo()                             { e.endWait() }

// sharedEvent is an event of the free list that several parties hold; the last one puts
// it back.
type sharedEvent struct {
	gpu  *gpu
	word uintptr
	refs atomic.Int32
}

// share takes an event from the list; the caller holds it.
func (g *gpu) share() (*sharedEvent, error) {
	word, err := g.events.take(g.ctx)
	if err != nil {
		return nil, err
	}
	e := &sharedEvent{gpu: g, word: word}
	e.refs.Store(1)
	return e, nil
}

func (e *sharedEvent) reached(key cuda.Key) (bool, error) {
	return e.gpu.ctx.QueryEventFor(e.word, key)
}

// letGo is drop that tries again later.
func (e *sharedEvent) letGo() {
	if e.drop() != nil {
		e.gpu.deferred.later(e.gpu, func() error { return e.gpu.ctx.FreeEvent(e.word) })
	}
}

func (e *sharedEvent) drop() error {
	if e.refs.Add(-1) > 0 {
		return nil
	}
	return e.gpu.events.put(e.gpu.ctx, e.word)
}

// event makes the caller's hold on e an owned Event.
func (e *sharedEvent) event() *Event {
	return &Event{handle{gpu: e.gpu, kind: "event", word: e.word, end: e.drop}}
}

// eventHandle is the CUevent of an event that may be of another implementation.
func eventHandle(e device.Event) (uintptr, error) {
	switch e := e.(type) {
	case nil:
		return 0, errNoEvent
	case *Event:
		if e == nil {
			return 0, errNoEvent
		}
		return e.word, e.usable()
	}
	if isNilPointer(e) {
		return 0, errNoEvent
	}
	return e.Handle(), nil
}

// eventList keeps events for their next use: making one is a call of the driver.
type eventList struct {
	mu   sync.Mutex
	free []uintptr
}

const maxFreeEvents = 256

func (l *eventList) take(ctx *cuda.Context) (uintptr, error) {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		h := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		ctx.HandOut(device.Ptr(h), 0)
		return h, nil
	}
	l.mu.Unlock()
	return ctx.NewEvent()
}

// put ends a use of the event. One that is pending, or that the driver finds fault
// with, is destroyed: on the list it would make a stranger wait.
func (l *eventList) put(ctx *cuda.Context, h uintptr) error {
	if done, err := ctx.QueryEventFor(h, 0); err == nil && done {
		l.mu.Lock()
		if len(l.free) < maxFreeEvents {
			ctx.Keep(device.Ptr(h), 0)
			l.free = append(l.free, h)
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
	}
	return ctx.FreeEvent(h)
}

// drain destroys the handles on the list, after the work of the GPU.
func (l *eventList) drain(g *gpu) {
	l.mu.Lock()
	free := l.free
	l.free = nil
	l.mu.Unlock()
	for _, h := range free {
		g.deferred.later(g, func() error { return g.ctx.FreeEvent(h) })
	}
}
