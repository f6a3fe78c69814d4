package cdevice

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// readAhead makes a goroutine ask for depth items before the reader is asked.
func (r *reader[T]) readAhead(depth int) {
	if depth > 0 {
		r.add(func(from supply[T]) supply[T] { return newAhead(from, depth) })
	}
}

// ahead is a supply that asks another one before it is asked itself: it holds depth items
// at most that were not taken. It begins with the first next. When the other one has
// ended, it is closed before that end is delivered.
type ahead[T counted] struct {
	from    supply[T]
	depth   int
	stop    chan struct{} // closed when no item is wanted any more
	stopped sync.Once

	got chan T // nil until the first next; closed behind the last item
	end error  // that comes after it; set before got is closed

	parts countdown // close, the goroutine, and from
}

func newAhead[T counted](from supply[T], depth int) *ahead[T] {
	return &ahead[T]{from: from, depth: depth, stop: make(chan struct{})}
}

func (a *ahead[T]) next() (item T, err error) {
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
	a.parts.init(3, nil)
	goroutines.Add(1)
	go a.run()
}

func (a *ahead[T]) interrupt() {
	a.stopped.Do(func() { close(a.stop) })
	a.from.interrupt()
}

// close drops the items that are ready. It does not wait for a next of the other supply
// that is under way: the goroutine closes that supply afterwards.
func (a *ahead[T]) close(done func()) {
	a.interrupt()
	if a.got == nil {
		a.from.close(done)
		return
	}
	a.parts.last = done // called by the last of the three
	defer a.parts.part()
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
	for !isClosed(a.stop) {
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
	defer a.parts.part()
	defer goroutines.Add(-1)
	defer tellPanic()
	defer a.from.close(a.parts.part)
	if isClosed(a.stop) {
		a.drain() // an item may have come after close
	}
}

func isClosed(c <-chan struct{}) bool {
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
	return a.from.next()
}
