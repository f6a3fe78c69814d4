package items

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// ahead is a source that reads another source ahead: it holds at most depth items that were not
// taken. It starts with the first Next. At the end of the other source, it closes that before it
// delivers the end.
type ahead[T Counted] struct {
	from    Source[T]
	depth   int
	stop    chan struct{} // closed to end the reading ahead
	stopped sync.Once

	got chan T // nil until the first Next; closed after the last item
	end error  // the error after the last item; set before got is closed

	parts Countdown // Close, the goroutine, and from
}

// NewAhead returns a source that reads up to depth items of another one ahead.
func NewAhead[T Counted](from Source[T], depth int) *ahead[T] {
	return &ahead[T]{from: from, depth: depth, stop: make(chan struct{})}
}

// Next returns the next item that is ready, or waits for it.
func (a *ahead[T]) Next() (item T, err error) {
	if a.got == nil {
		a.start()
	}
	ok := false
	select {
	case item, ok = <-a.got:
	case <-a.stop:
		return item, fielderr.Released("reader")
	}
	if !ok {
		return item, a.end
	}
	return item, nil
}

func (a *ahead[T]) start() {
	// The goroutine holds one item, the channel the others.
	a.got = make(chan T, a.depth-1)
	a.parts.Init(3, nil)
	Goroutines.Add(1)
	go a.run()
}

// Interrupt ends the wait of Next, and interrupts the source below.
func (a *ahead[T]) Interrupt() {
	a.stopped.Do(func() { close(a.stop) })
	a.from.Interrupt()
}

// Close drops the items that are ready. It does not wait for a running Next of the other source:
// the goroutine closes that source afterwards.
func (a *ahead[T]) Close(done func()) {
	a.Interrupt()
	if a.got == nil {
		a.from.Close(done)
		return
	}
	a.parts.Last = done // called by the last of the three
	defer a.parts.Part()
	a.drain()
}

// drain drops the items that are ready.
func (a *ahead[T]) drain() {
	for {
		select {
		case item, ok := <-a.got:
			if !ok {
				return
			}
			drop(item)
		default:
			return
		}
	}
}

func (a *ahead[T]) run() {
	a.end = errGoexit
	defer a.finish() // even if the source ends the goroutine
	for !IsClosed(a.stop) {
		item, err := a.ask()
		if err != nil {
			a.end = err
			return
		}
		select {
		case a.got <- item:
		case <-a.stop:
			drop(item)
			return
		}
	}
}

// finish closes the other source, and then delivers the end. After the reader has reported its end,
// neither the source nor the goroutine is in use.
func (a *ahead[T]) finish() {
	defer close(a.got)
	defer a.parts.Part()
	defer Goroutines.Add(-1)
	defer tellPanic()
	defer a.from.Close(a.parts.Part)
	if IsClosed(a.stop) {
		a.drain() // an item may have arrived after Close
	}
}

// IsClosed reports whether c was closed. No value is ever sent on c.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (a *ahead[T]) ask() (item T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fielderr.Panic(v)
		}
	}()
	return a.from.Next()
}
