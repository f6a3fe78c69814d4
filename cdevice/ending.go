package cdevice

import (
	"context"
	"fmt"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"sync"
	"sync/atomic"
)

// ending is what a reader knows of its end: whether it has begun, and what is still in use.
type ending struct {
	// over reports that the last reference is gone, or that the reader was closed. The
	// goroutine that holds the reader's mu then, or gets it, closes the supply: no other
	// goroutine waits for a call that is under way.
	over atomic.Bool

	source countdown   // the supply, and the goroutine of Close
	closer atomic.Bool // Close has begun its goroutine
	live   countdown   // the references, and the source: until then, the reader is counted

	done    chan struct{} // closed when the source is not in use any more
	waiting sync.Mutex
	after   []func()       // called then
	readers map[any]func() // made from this one, by CopyTo or AsCPU: what ends their waits
}

var liveReaders, goroutines atomic.Int64

func (e *ending) init() {
	e.done = make(chan struct{})
	e.source.init(1, e.unused)
	e.live.init(2, func() { liveReaders.Add(-1) })
	liveReaders.Add(1)
}

// unused is called once, when the source is not in use any more.
func (e *ending) unused() {
	e.live.part()
	e.waiting.Lock()
	after := e.after
	e.after = nil
	close(e.done)
	e.waiting.Unlock()
	for _, f := range after {
		f()
	}
}

// whenUnused calls f when the source is not in use any more, which it may be already.
func (e *ending) whenUnused(f func()) {
	e.waiting.Lock()
	unused := isClosed(e.done)
	if !unused {
		e.after = append(e.after, f)
	}
	e.waiting.Unlock()
	if unused {
		f()
	}
}

// use begins a use of the source, which Close waits for until that part is over. It is nil
// when the last use is over: the stream has ended then.
func (e *ending) use() *countdown {
	if !e.source.add() {
		return nil
	}
	return &e.source
}

// deriving registers a supply that is made from the reader, whose waits Close of the reader ends.
func (e *ending) deriving(supply any, cancel func()) {
	e.waiting.Lock()
	defer e.waiting.Unlock()
	if e.readers == nil {
		e.readers = map[any]func(){}
	}
	e.readers[supply] = cancel
}

// derived ends what deriving began.
func (e *ending) derived(supply any) {
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

// release drops a reference and reports whether it was the last one.
func (r *reader[T]) release() (last bool) {
	if !r.refs.Release() {
		return false
	}
	defer r.live.part()
	defer r.finish()
	r.over.Store(true)
	r.stages.top().interrupt() // a call of Next on another goroutine may wait for ever
	r.dropCurrent(true)
	return true
}

// releaseThen drops a reference. f is called after that; after the last one, when the source
// is not in use any more.
func (r *reader[T]) releaseThen(f func()) {
	last := true
	defer func() { // even if the source panics
		if last {
			r.whenUnused(f)
		} else {
			f()
		}
	}()
	last = r.release()
}

// close ends the stream, and waits until the source is not in use any more, or ctx is done.
func (r *reader[T]) close(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpClose, ctx); err != nil {
		return err
	}
	r.interrupt()
	r.cancelDerived()
	if !r.closer.Swap(true) && r.source.add() {
		// On a goroutine of its own: what the supply is stopped with may block.
		goroutines.Add(1)
		go func() {
			defer r.source.part()
			defer goroutines.Add(-1)
			r.finishQuietly()
		}()
	}
	if isClosed(r.done) {
		return nil // even if ctx is done
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fielderr.ContextError(ctx, fielderr.OpClose)
	}
}

// interrupt ends the stream, and the waits of a call that is under way.
func (r *reader[T]) interrupt() {
	r.endWith(closedReader())
	r.over.Store(true)
	r.stages.top().interrupt()
}

// closedReader is the error of a reader that was closed.
func closedReader() error { return fielderr.New(fielderr.OpRead, "reader", nil, nil, errClosed) }

var errClosed = fmt.Errorf("closed: %w", ErrReleased)

// finish closes the supply, once, if the stream is over and no call is under way. The
// goroutine that held mu calls it afterwards.
func (r *reader[T]) finish() {
	if r.over.Load() && r.stop() {
		r.stages.top().close(r.source.part)
	}
}

// finishQuietly is finish where no caller is told of a panic.
func (r *reader[T]) finishQuietly() {
	defer tellPanic()
	r.finish()
}

// stop reports whether the caller is the one to close the supply, which is not asked any more then.
func (r *reader[T]) stop() bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	stopped := r.stopped
	r.stopped = true
	return !stopped
}

// countdown calls a function when its last part is over.
type countdown struct {
	left atomic.Int64
	last func()
}

func (c *countdown) init(parts int64, last func()) {
	c.left.Store(parts)
	c.last = last
}

// add adds a part, unless the last one is over.
func (c *countdown) add() bool {
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

// part ends a part. nil has none.
func (c *countdown) part() {
	if c != nil && c.left.Add(-1) == 0 {
		c.last()
	}
}

// background runs f on a goroutine of its own, which is counted.
func background(f func()) {
	goroutines.Add(1)
	go func() {
		defer goroutines.Add(-1)
		f()
	}()
}
