package items

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// prefetcher is a source that reads another source ahead: it holds at most depth items that were not
// taken. It starts with the first Next. At the end of the other source, it closes that before it
// delivers the end.
type prefetcher[T Counted] struct {
	from    Source[T]
	depth   int
	stop    chan struct{} // closed to end the reading ahead
	stopped sync.Once

	got chan T // nil until the first Next; closed after the last item
	end error  // the error after the last item; set before got is closed

	parts Countdown // Close, the goroutine, and from
}

// NewPrefetcher returns a source that reads up to depth items of another one ahead.
func NewPrefetcher[T Counted](from Source[T], depth int) *prefetcher[T] {
	return &prefetcher[T]{from: from, depth: depth, stop: make(chan struct{})}
}

// Next returns the next item that is ready, or waits for it.
func (p *prefetcher[T]) Next() (item T, err error) {
	if p.got == nil {
		p.start()
	}
	ok := false
	select {
	case item, ok = <-p.got:
	case <-p.stop:
		return item, fielderr.Released("reader")
	}
	if !ok {
		return item, p.end
	}
	return item, nil
}

func (p *prefetcher[T]) start() {
	// The goroutine holds one item, the channel the others.
	p.got = make(chan T, p.depth-1)
	p.parts.Init(3, nil)
	Goroutines.Add(1)
	go p.run()
}

// Interrupt ends the wait of Next, and interrupts the source below.
func (p *prefetcher[T]) Interrupt() {
	p.stopped.Do(func() { close(p.stop) })
	p.from.Interrupt()
}

// Close drops the items that are ready. It does not wait for a running Next of the other source:
// the goroutine closes that source afterwards.
func (p *prefetcher[T]) Close(done func()) {
	p.Interrupt()
	if p.got == nil {
		p.from.Close(done)
		return
	}
	p.parts.Last = done // called by the last of the three
	defer p.parts.Part()
	p.drain()
}

// drain drops the items that are ready.
func (p *prefetcher[T]) drain() {
	for {
		select {
		case item, ok := <-p.got:
			if !ok {
				return
			}
			drop(item)
		default:
			return
		}
	}
}

func (p *prefetcher[T]) run() {
	p.end = fielderr.Goexit
	defer p.finish() // even if the source ends the goroutine
	for !IsClosed(p.stop) {
		item, err := p.ask()
		if err != nil {
			p.end = err
			return
		}
		select {
		case p.got <- item:
		case <-p.stop:
			drop(item)
			return
		}
	}
}

// finish closes the other source, and then delivers the end. After the reader has reported its end,
// neither the source nor the goroutine is in use.
func (p *prefetcher[T]) finish() {
	defer close(p.got)
	defer p.parts.Part()
	defer Goroutines.Add(-1)
	defer tellPanic()
	defer p.from.Close(p.parts.Part)
	if IsClosed(p.stop) {
		p.drain() // an item may have arrived after Close
	}
}

func (p *prefetcher[T]) ask() (item T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fielderr.Panic(v)
		}
	}()
	return p.from.Next()
}

// Prefetch makes a goroutine read up to depth items ahead.
func (r *Reader[T]) Prefetch(depth int) {
	if depth > 0 {
		r.add(func(from Source[T]) Source[T] { return NewPrefetcher(from, depth) })
	}
}
