package items

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// ending is what a reader knows of its end: whether it has begun, and what is still in use.
type ending struct {
	// Over reports that the last reference is gone, or that the reader was closed. The goroutine
	// that holds the reader's mu at that time, or acquires it, closes the source: no other
	// goroutine waits for a running call.
	Over atomic.Bool

	source Countdown   // the source, and the goroutine of Close
	closer atomic.Bool // Close has begun its goroutine
	live   Countdown   // the references, and the source: the reader is counted until all are gone

	done    chan struct{} // closed when the source is no longer in use
	waiting sync.Mutex
	after   []func()       // called when the source is no longer in use
	readers map[any]func() // functions that end the waits of readers made from this one by CopyTo or AsCPU
}

// LiveReaders and Goroutines are the counts of cdevice.Stats.
var LiveReaders, Goroutines atomic.Int64

func (e *ending) init() {
	e.done = make(chan struct{})
	e.source.Init(1, e.unused)
	e.live.Init(2, func() { LiveReaders.Add(-1) })
	LiveReaders.Add(1)
}

// unused is called once, when the source is no longer in use.
func (e *ending) unused() {
	e.live.Part()
	e.waiting.Lock()
	after := e.after
	e.after = nil
	close(e.done)
	e.waiting.Unlock()
	for _, f := range after {
		f()
	}
}

// WhenUnused calls f when the source is no longer in use; at once, if that is so already.
func (e *ending) WhenUnused(f func()) {
	e.waiting.Lock()
	unused := IsClosed(e.done)
	if !unused {
		e.after = append(e.after, f)
	}
	e.waiting.Unlock()
	if unused {
		f()
	}
}

// Use begins a use of the source, whose end Close waits for. It returns nil if the stream has ended
// and the source is no longer in use.
func (e *ending) Use() *Countdown {
	if !e.source.Add() {
		return nil
	}
	return &e.source
}

// Deriving registers a source that is made from the reader. Close of the reader ends its waits.
func (e *ending) Deriving(source any, cancel func()) {
	e.waiting.Lock()
	defer e.waiting.Unlock()
	if e.readers == nil {
		e.readers = map[any]func(){}
	}
	e.readers[source] = cancel
}

// Derived removes a source that Deriving registered.
func (e *ending) Derived(source any) {
	e.waiting.Lock()
	defer e.waiting.Unlock()
	delete(e.readers, source)
}

// cancelDerived ends the waits of sources that are made from the reader.
func (e *ending) cancelDerived() {
	e.waiting.Lock()
	defer e.waiting.Unlock()
	for _, cancel := range e.readers {
		cancel()
	}
}

// ClosedReader returns the error of a reader that was closed.
func ClosedReader() error { return fielderr.New(fielderr.OpRead, "reader", nil, nil, ErrClosed) }

// ErrClosed is wrapped by the error of a reader that was closed.
var ErrClosed = fmt.Errorf("closed: %w", fielderr.ErrReleased)

// IsClosed reports whether c was closed. No value is ever sent on c.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
