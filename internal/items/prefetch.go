package items

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// ahead is a supply that asks another one before it is asked itself: it holds depth items
// at most that were not taken. It begins with the first next. When the other one has
// ended, it is closed before that end is delivered.
type ahead[T Counted] struct {
	from    Source[T]
	depth   int
	stop    chan struct{} // closed when no item is wanted any more
	stopped sync.Once

	got chan T // nil until the first next; closed behind the last item
	end error  // that comes after it; set before got is closed

	parts Countdown // close, the goroutine, and from
}

func NewAhead[T Counted](from Source[T], depth int) *ahead[T] {
	return &ahead[T]{from: from, depth: depth, stop: make(chan struct{})}
}

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

func (a *ahead[T]) Interrupt() {
	a.stopped.Do(func() { close(a.stop) })
	a.from.Interrupt()
}

// close drops the items that are ready. It does not wait for a next of the other supply
// that is under way: the goroutine closes that supply afterwards.
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

// finish closes the other supply, and then delivers the end: what the reader does next finds
// neither the supply in use nor the goroutine.
func (a *ahead[T]) finish() {
	defer close(a.got)
	defer a.parts.Part()
	defer Goroutines.Add(-1)
	defer tellPanic()
	defer a.from.Close(a.parts.Part)
	if IsClosed(a.stop) {
		a.drain() // an item may have come after close
	}
}

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
