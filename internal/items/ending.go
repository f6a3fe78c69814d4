package items

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// ending is what a reader knows of its end: whether it has begun, and what is still in use.
type ending struct {
	// Over reports that the last reference is gone, or that the reader was closed. The
	// goroutine that holds the reader's mu then, or gets it, closes the supply: no other
	// goroutine waits for a call that is under way.
	Over atomic.Bool

	source Countdown   // the supply, and the goroutine of Close
	closer atomic.Bool // Close has begun its goroutine
	live   Countdown   // the references, and the source: until then, the reader is counted

	done    chan struct{} // closed when the source is not in use any more
	waiting sync.Mutex
	after   []func()       // called then
	readers map[any]func() // made from this one, by CopyTo or AsCPU: what ends their waits
}

var LiveReaders, Goroutines atomic.Int64

func (e *ending) init() {
	e.done = make(chan struct{})
	e.source.Init(1, e.unused)
	e.live.Init(2, func() { LiveReaders.Add(-1) })
	LiveReaders.Add(1)
}

// unused is called once, when the source is not in use any more.
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

// WhenUnused calls f when the source is not in use any more, which it may be already.
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

// Use begins a use of the source, which Close waits for until that part is over. It is nil
// when the last use is over: the stream has ended then.
func (e *ending) Use() *Countdown {
	if !e.source.Add() {
		return nil
	}
	return &e.source
}

// Deriving registers a supply that is made from the reader, whose waits Close of the reader ends.
func (e *ending) Deriving(supply any, cancel func()) {
	e.waiting.Lock()
	defer e.waiting.Unlock()
	if e.readers == nil {
		e.readers = map[any]func(){}
	}
	e.readers[supply] = cancel
}

// Derived ends what deriving began.
func (e *ending) Derived(supply any) {
	e.waiting.Lock()
	defer e.waiting.Unlock()
	delete(e.readers, supply)
}

// cancelDerived ends the waits for items that are being made from the reader's.
func (e *ending) cancelDerived() {
	e.waiting.Lock()
	defer e.waiting.Unlock()
	for _, cancel := range e.readers {
		cancel()
	}
}

// ClosedReader is the error of a reader that was closed.
func ClosedReader() error { return fielderr.New(fielderr.OpRead, "reader", nil, nil, errClosed) }

var errClosed = fmt.Errorf("closed: %w", fielderr.ErrReleased)

// Countdown calls a function when its last part is over.
type Countdown struct {
	left atomic.Int64
	Last func()
}

func (c *Countdown) Init(parts int64, last func()) {
	c.left.Store(parts)
	c.Last = last
}

// Add adds a part, unless the last one is over.
func (c *Countdown) Add() bool {
	for {
		left := c.left.Load()
		if left == 0 {
			return false
		}
		if c.left.CompareAndSwap(left, left+1) {
			return true
		}
	}
}

// Part ends a part. nil has none.
func (c *Countdown) Part() {
	if c != nil && c.left.Add(-1) == 0 {
		c.Last()
	}
}

// Background runs f on a goroutine of its own, which is counted.
func Background(f func()) {
	Goroutines.Add(1)
	go func() {
		defer Goroutines.Add(-1)
		f()
	}()
}
