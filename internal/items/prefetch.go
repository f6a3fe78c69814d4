package items

import (
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// MaxAhead is the most items that a program may have requested or read ahead.
const MaxAhead = 1 << 20

// prefetcher is a source that reads another source ahead: it holds at most depth items that were not
// taken. It starts with the first Next. At the end of the other source, it closes that before it
// delivers the end.
type prefetcher[T Counted] struct {
	from    Source[T]
	depth   int
	started bool // used by Next and Close only

	mu      sync.Mutex // no program's code is called while it is held
	changed sync.Cond
	ready   Queue[T]
	stopped bool  // no item is needed any more
	ended   bool  // no item arrives any more
	end     error // the error after the last item

	parts Countdown // Close, the goroutine, and from
}

// NewPrefetcher returns a source that reads up to depth items of another one ahead.
func NewPrefetcher[T Counted](from Source[T], depth int) *prefetcher[T] {
	p := &prefetcher[T]{from: from, depth: depth}
	p.changed.L = &p.mu
	return p
}

// Next returns the next item that is ready, or waits for it.
func (p *prefetcher[T]) Next() (item T, err error) {
	if !p.started {
		p.started = true
		p.parts.Init(3, nil)
		Goroutines.Add(1)
		go p.run()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ready.Size() == 0 && !p.ended && !p.stopped {
		p.changed.Wait()
	}
	switch {
	case p.ready.Size() > 0:
		p.changed.Signal() // there is room for another one
		return p.ready.Pop(), nil
	case p.ended:
		return item, p.end
	}
	return item, fielderr.Released("reader")
}

// Interrupt ends the wait of Next, and interrupts the source below.
func (p *prefetcher[T]) Interrupt() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.changed.Broadcast()
	p.from.Interrupt()
}

// Close drops the items that are ready. It does not wait for a running Next of the other source:
// the goroutine closes that source afterwards.
func (p *prefetcher[T]) Close(done func()) {
	p.Interrupt()
	if !p.started {
		p.from.Close(done)
		return
	}
	p.parts.Last = done // called by the last of the three
	defer p.parts.Part()
	p.mu.Lock()
	ready := p.ready.PopAll() // the last: none is added after Interrupt
	p.mu.Unlock()
	for _, item := range ready {
		drop(item)
	}
}

func (p *prefetcher[T]) run() {
	end := fielderr.Goexit
	defer func() { p.finish(end) }() // even if the source ends the goroutine
	for p.hasRoom() {
		item, err := p.ask()
		if err != nil {
			end = err
			return
		}
		if !p.add(item) {
			drop(item)
		}
	}
	end = fielderr.Released("reader")
}

// hasRoom waits until another item may be read. It returns false if none is needed any more.
func (p *prefetcher[T]) hasRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ready.Size() >= p.depth && !p.stopped {
		p.changed.Wait()
	}
	return !p.stopped
}

// add makes an item ready, and reports whether it is needed.
func (p *prefetcher[T]) add(item T) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.ready.Push(item)
		p.changed.Signal()
	}
	return !p.stopped
}

// finish closes the other source, and then delivers the end. After the reader has reported its end,
// neither the source nor the goroutine is in use.
func (p *prefetcher[T]) finish(end error) {
	defer func() {
		p.mu.Lock()
		p.end, p.ended = end, true
		p.mu.Unlock()
		p.changed.Broadcast()
	}()
	defer p.parts.Part()
	defer Goroutines.Add(-1)
	defer tellPanic()
	defer p.from.Close(p.parts.Part)
}

func (p *prefetcher[T]) ask() (item T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fielderr.Panic(v)
		}
	}()
	return p.from.Next()
}

// Prefetch makes a goroutine read up to depth items ahead. A depth of more than MaxAhead ends the stream
// with an error.
func (r *Reader[T]) Prefetch(depth int) {
	if depth > MaxAhead {
		if !r.Over.Load() {
			r.endWith(fielderr.Invalid(fielderr.OpRead, "Prefetch", depth, fmt.Sprintf("at most %d", MaxAhead)))
		}
		return
	}
	if depth > 0 {
		r.add(func(from Source[T]) Source[T] { return NewPrefetcher(from, depth) })
	}
}
