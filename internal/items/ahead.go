package items

import (
	"errors"
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Ahead reads one item ahead, on a goroutine, while its user works on the item before it. Next, Start
// and Close are called by one goroutine at a time.
type Ahead[T Counted] struct {
	Ask func() (T, error)

	mu    sync.Mutex // no program's code is called while it is held
	next  *reading[T]
	ended bool   // no item is kept
	then  func() // of Close, during a read
}

// reading is the read of one item that Next has not taken.
type reading[T Counted] struct {
	done    chan struct{} // closed when the read is over, and got is Next's
	over    bool
	awaited bool // by Next, which has it as soon as it is over
	got     Result[T]
}

// ErrDiscarded is the result of a read whose item was dropped.
var ErrDiscarded = errors.New("cdevice: the item was dropped")

// Next returns the item that was read ahead, or asks for one. If it waited for the item, the read of
// the one after that has begun: the goroutine goes on, which is sooner than this one can tell it to.
// If the item was dropped, the error is ErrDiscarded: the stream must not go on without that item, or
// end as if there had been none.
func (a *Ahead[T]) Next() (T, error) {
	a.mu.Lock()
	r := a.next
	switch {
	case r == nil:
		a.mu.Unlock()
		return a.Ask()
	case r.over:
		a.next = nil
	default:
		r.awaited = true
	}
	a.mu.Unlock()
	<-r.done
	return r.got.Item, r.got.Err
}

// Start begins to read the next item, unless Next has. The one before it was returned by Next.
func (a *Ahead[T]) Start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		a.next = newReading[T]()
		Goroutines.Add(1)
		go a.run(a.next)
	}
}

func newReading[T Counted]() *reading[T] { return &reading[T]{done: make(chan struct{})} }

// run reads an item, and the ones after it for as long as Next waits for them.
func (a *Ahead[T]) run(r *reading[T]) {
	for r != nil {
		r = a.read(r)
	}
}

// read reads one item, and returns the read that follows at once, or nil at the end of the goroutine.
func (a *Ahead[T]) read(r *reading[T]) (following *reading[T]) {
	got := Result[T]{Err: fielderr.Goexit}
	defer func() { // even if the source ends the goroutine
		if v := recover(); v != nil {
			got.Err = fielderr.Panic(v)
		}
		following = a.finish(r, got)
	}()
	got.Item, got.Err = a.Ask()
	return nil
}

// finish ends a read. It returns the one that follows.
func (a *Ahead[T]) finish(r *reading[T], got Result[T]) (following *reading[T]) {
	var none T
	dropped := none
	a.mu.Lock()
	if a.ended && got.Item != none {
		dropped, got = got.Item, Result[T]{Err: ErrDiscarded}
	}
	r.got, r.over = got, true
	if r.awaited {
		if got.Err == nil {
			following = newReading[T]()
		}
		a.next = following
	}
	then := a.then
	a.mu.Unlock()
	switch {
	case following != nil:
		defer close(r.done)
	case then != nil:
		defer Goroutines.Add(-1)
		defer Quietly(then)
		defer close(r.done)
	default:
		defer close(r.done)
		defer Goroutines.Add(-1) // before Next returns: at the end of a stream no goroutine is left
	}
	if dropped != none {
		drop(dropped)
	}
	return following
}

// Discard drops the item that was read, or that the read under way returns. It does not wait for that.
func (a *Ahead[T]) Discard() {
	var none T
	dropped := none
	a.mu.Lock()
	a.ended = true
	if r := a.next; r != nil && r.got.Item != none {
		dropped, r.got = r.got.Item, Result[T]{Err: ErrDiscarded}
	}
	a.mu.Unlock()
	if dropped != none {
		drop(dropped)
	}
}

// Close discards the item, and calls then when no read is under way.
func (a *Ahead[T]) Close(then func()) {
	a.Discard()
	a.mu.Lock()
	wait := a.next != nil && !a.next.over
	if wait {
		a.then = then
	}
	a.mu.Unlock()
	if !wait {
		then()
	}
}
