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

	ready chan struct{} // closed when the read is over; nil: none was started

	mu      sync.Mutex // no program's code is called while it is held
	reading bool
	got     Result[T] // of the read that is over
	ended   bool      // no item is kept
	then    func()    // of Close, during a read
}

// ErrDiscarded is the result of a read whose item was dropped.
var ErrDiscarded = errors.New("cdevice: the item was dropped")

// Next returns the item that was read ahead, or asks for one. If the item was dropped, the error is
// ErrDiscarded: the stream must not go on without that item, or end as if there had been none.
func (a *Ahead[T]) Next() (T, error) {
	if a.ready == nil {
		return a.Ask()
	}
	<-a.ready
	a.mu.Lock()
	got := a.got
	a.got, a.ready = Result[T]{}, nil
	a.mu.Unlock()
	return got.Item, got.Err
}

// Start begins to read the next item. The one before it was returned by Next.
func (a *Ahead[T]) Start() {
	a.mu.Lock()
	a.reading = true
	a.mu.Unlock()
	a.ready = make(chan struct{})
	Goroutines.Add(1)
	go a.read()
}

func (a *Ahead[T]) read() {
	got := Result[T]{Err: errGoexit}
	defer func() { // even if the source ends the goroutine
		if v := recover(); v != nil {
			got.Err = fielderr.Panic(v)
		}
		var none T
		dropped := none
		a.mu.Lock()
		if a.reading = false; a.ended && got.Item != none {
			dropped, got = got.Item, Result[T]{Err: ErrDiscarded}
		}
		a.got = got
		then := a.then
		a.mu.Unlock()
		if then != nil {
			defer Goroutines.Add(-1)
			defer Quietly(then)
			defer close(a.ready)
		} else {
			defer close(a.ready)
			defer Goroutines.Add(-1) // before Next returns: at the end of a stream no goroutine is left
		}
		if dropped != none {
			drop(dropped)
		}
	}()
	got.Item, got.Err = a.Ask()
}

// Discard drops the item that was read, or that the read under way returns. It does not wait for that.
func (a *Ahead[T]) Discard() {
	var none T
	a.mu.Lock()
	a.ended = true
	item := a.got.Item
	if item != none {
		a.got = Result[T]{Err: ErrDiscarded}
	}
	a.mu.Unlock()
	if item != none {
		drop(item)
	}
}

// Close discards the item, and calls then when no read is under way.
func (a *Ahead[T]) Close(then func()) {
	a.Discard()
	a.mu.Lock()
	wait := a.reading
	if wait {
		a.then = then
	}
	a.mu.Unlock()
	if !wait {
		then()
	}
}
