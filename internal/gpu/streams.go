package gpu

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Streams keeps the streams of a GPU that this module made: those that are alive, which
// are asked whether they capture, and those that copies may use again.
type Streams struct {
	ctx      *cuda.Context
	deferred *Deferred
	events   *Events

	mu       sync.Mutex
	alive    map[uintptr]struct{}
	free     []uintptr    // whose work may be pending, the one longest on the list first
	asking   bool         // a query about the live streams is under way
	answered atomic.Int32 // 1: it has been
	ending   []func()     // that end streams afterwards
}

const (
	maxFreeStreams = 32
	triedStreams   = 4 // before a new one is made
)

// New makes h an owned stream.
func (l *Streams) New(h *Handle, priority int) error {
	word, err := l.ctx.NewStream(priority)
	if err != nil {
		return err
	}
	l.own(h, word, func() error { return l.destroy(word) })
	return nil
}

// destroy ends a stream once its work is done.
func (l *Streams) destroy(word uintptr) error {
	l.events.backlog.forget(word)
	return l.ctx.FreeStream(word)
}

// Borrow makes h a stream that another library owns.
func (l *Streams) Borrow(h *Handle, word uintptr) { h.Borrow(l.deferred, "stream", word) }

// NewForCopy makes h an owned stream without pending work: a closed one of NewForCopy, or a new one.
func (l *Streams) NewForCopy(h *Handle) error {
	word, err := l.takeIdle()
	if err != nil {
		return err
	}
	if word == 0 {
		if word, err = l.ctx.NewStream(0); err != nil {
			return err
		}
	}
	l.own(h, word, func() error { return l.put(word) })
	return nil
}

// own makes h an owned stream, which Close ends by end.
func (l *Streams) own(h *Handle, word uintptr, end func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alive == nil {
		l.alive = map[uintptr]struct{}{}
	}
	l.alive[word] = struct{}{}
	h.own(l.deferred, "stream", word, func() error { return l.end(word, end) })
}

// end ends a stream once no query uses it.
func (l *Streams) end(word uintptr, end func() error) error {
	l.mu.Lock()
	delete(l.alive, word)
	if l.asking && l.answered.Load() == 0 { // mutant: never
		l.ending = append(l.ending, func() {
			if end() != nil {
				l.deferred.later(end)
			}
		})
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	return end()
}

// takeIdle takes a stream without pending work off the list, or returns 0.
func (l *Streams) takeIdle() (uintptr, error) {
	for range triedStreams {
		l.mu.Lock()
		if len(l.free) == 0 {
			l.mu.Unlock()
			return 0, nil
		}
		word := l.free[0]
		l.free = slices.Delete(l.free, 0, 1)
		l.mu.Unlock()
		done, err := l.ctx.QueryStreamFor(word, 0)
		if done && err == nil {
			l.events.backlog.forget(word)
			l.ctx.HandOut(device.Ptr(word), 0)
			return word, nil
		}
		l.mu.Lock()
		l.free = append(l.free, word)
		l.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// put puts a stream on the list, or ends it.
func (l *Streams) put(word uintptr) error {
	l.mu.Lock()
	kept := len(l.free) < maxFreeStreams
	if kept {
		l.ctx.Keep(device.Ptr(word), 0)
		l.free = append(l.free, word)
	}
	l.mu.Unlock()
	if kept {
		return nil
	}
	return l.destroy(word)
}

// drain ends the streams on the list.
func (l *Streams) drain() {
	l.mu.Lock()
	free := l.free
	l.free = nil
	l.mu.Unlock()
	for _, word := range free {
		if l.destroy(word) != nil {
			l.deferred.later(func() error { return l.ctx.FreeStream(word) })
		}
	}
}

// ask returns the streams that are alive, and keeps them alive until answered is 1, or asked is
// called.
func (l *Streams) ask() []uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := make([]uintptr, 0, len(l.alive))
	for word := range l.alive {
		words = append(words, word)
	}
	l.asking = true
	l.answered.Store(0)
	return words
}

// asked ends the streams that were closed during the query.
func (l *Streams) asked() {
	l.mu.Lock()
	ending := l.ending
	l.asking, l.ending = false, nil
	l.mu.Unlock()
	for _, end := range ending {
		end()
	}
}

// Defer ends an item after the work already enqueued on the stream: on this goroutine, if it has
// completed. It reports false if no event can be recorded on the stream without harm.
func (l *Streams) Defer(h *Handle, one *Deferral) bool {
	after := l.mark(h)
	if after == nil {
		return false
	}
	one.giveBack(l.ctx)
	l.deferred.whenReached(one, after)
	return true
}

// mark returns an event behind the work on the stream so far, which the caller holds; nil if none can
// be recorded without harm. The stream is not ended meanwhile: another goroutine may close it.
func (l *Streams) mark(h *Handle) *SharedEvent {
	stream := h.word
	if stream == cuda.PerThreadStream || h.startWait() != nil {
		return nil
	}
	defer h.endWait()
	// An event that is recorded in a capture never completes, and asking for it invalidates the capture.
	if busy, err := l.ctx.Capturing([]uintptr{stream}); busy || err != nil {
		return nil
	}
	after, err := l.events.record(stream)
	if err != nil {
		return nil
	}
	return after
}
