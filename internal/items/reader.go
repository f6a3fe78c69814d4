// Package items is the core of readers: sources of items, what Map and Prefetch put on top of them, and
// how a stream ends.
package items

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
)

// Prefetch makes a goroutine ask for depth items before the reader is asked.
func (r *Reader[T]) Prefetch(depth int) {
	if depth > 0 {
		r.add(func(from Source[T]) Source[T] { return NewAhead(from, depth) })
	}
}

// Map makes f's results the items. Without f, the stream ends.
func (r *Reader[T]) Map(f func(T) (T, error)) {
	if f == nil {
		if !r.Over.Load() {
			r.endWith(fielderr.Absent(fielderr.OpRead, "f", "a function"))
		}
		return
	}
	r.add(func(from Source[T]) Source[T] { return &mapped[T]{from, r.Fit, f, r.Check} })
}

// apply puts the pending stages on top and returns the supply to be asked; nil if the stream is
// over. Close sets over before it interrupts the top: so it interrupts the supply that is asked.
func (r *Reader[T]) apply() Source[T] {
	s := &r.stages
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Over.Load() {
		return nil
	}
	for _, on := range s.pending {
		if b, ok := s.supply.(*Bounded[T]); ok { // no item is given once its context is done
			s.supply = b.under(on)
		} else {
			s.supply = on(s.supply)
		}
	}
	s.pending = nil
	return s.supply
}

// add makes the items that are left go through a stage, unless the stream has ended.
func (r *Reader[T]) add(on stage[T]) {
	s := &r.stages
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.Over.Load() && r.end.Load() == nil {
		s.pending = append(s.pending, on)
	}
}

// Release drops a reference and reports whether it was the last one.
func (r *Reader[T]) Release() (last bool) {
	if !r.Refs.Release() {
		return false
	}
	defer r.live.Part()
	defer r.finish()
	r.Over.Store(true)
	r.stages.top().Interrupt() // a call of Next on another goroutine may wait for ever
	r.dropCurrent(true)
	return true
}

// ReleaseThen drops a reference. f is called after that; after the last one, when the source
// is not in use any more.
func (r *Reader[T]) ReleaseThen(f func()) {
	last := true
	defer func() { // even if the source panics
		if last {
			r.WhenUnused(f)
		} else {
			f()
		}
	}()
	last = r.Release()
}

// Close ends the stream, and waits until the source is not in use any more, or ctx is done.
func (r *Reader[T]) Close(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpClose, ctx); err != nil {
		return err
	}
	r.Interrupt()
	r.cancelDerived()
	if !r.closer.Swap(true) && r.source.Add() {
		// On a goroutine of its own: what the supply is stopped with may block.
		Goroutines.Add(1)
		go func() {
			defer r.source.Part()
			defer Goroutines.Add(-1)
			r.finishQuietly()
		}()
	}
	if IsClosed(r.done) {
		return nil // even if ctx is done
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fielderr.ContextError(ctx, fielderr.OpClose)
	}
}

// Interrupt ends the stream, and the waits of a call that is under way.
func (r *Reader[T]) Interrupt() {
	r.endWith(ClosedReader())
	r.Over.Store(true)
	r.stages.top().Interrupt()
}

// finish closes the supply, once, if the stream is over and no call is under way. The
// goroutine that held mu calls it afterwards.
func (r *Reader[T]) finish() {
	if r.Over.Load() && r.stop() {
		r.stages.top().Close(r.source.Part)
	}
}

// finishQuietly is finish where no caller is told of a panic.
func (r *Reader[T]) finishQuietly() {
	defer tellPanic()
	r.finish()
}

// stop reports whether the caller is the one to close the supply, which is not asked any more then.
func (r *Reader[T]) stop() bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	stopped := r.stopped
	r.stopped = true
	return !stopped
}

// Reader is what RecordReader and ArrayReader have in common. How it ends stands in ending.go.
type Reader[T Counted] struct {
	Refs       refcount.Count
	DeviceType device.Type
	Fit        func(T) T     // what an item is made before it is given out; nil: nothing
	Check      func(T) error // of an item that a program makes
	ending

	end atomic.Pointer[StreamEnd] // nil before the end

	mu      sync.Mutex // held while the supply is asked: its calls are serialised
	stages  stages[T]
	stopped bool // the supply was closed, or is about to be

	own     sync.Mutex // of the item that step took; no other lock is taken below it
	Current T
	gone    bool // the last reference is: nothing is kept any more
}

func (r *Reader[T]) Init(kind string, t device.Type, s Source[T]) {
	r.Refs.InitTraced(kind)
	r.DeviceType, r.stages.supply = t, s
	r.ending.init()
}

// Hold adds a reference, unless the last one is gone.
func (r *Reader[T]) Hold() bool { return r.Refs.TryRetain() }

// Pull returns the next item, owned by the caller, or the error that ended the stream:
// io.EOF where that was the last item. Code of the program that panics has failed.
func (r *Reader[T]) Pull() (item T, err error) {
	if r.Over.Load() { // do not wait for a call that is under way
		return item, r.endWith(fielderr.Released("reader"))
	}
	defer r.finishQuietly()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ask()
}

// ask is pull for the holder of mu. An item that comes after Close has ended the stream is
// dropped; one that comes after the last release is the caller's.
func (r *Reader[T]) ask() (item T, err error) {
	from := r.apply()
	if from == nil {
		return item, r.endWith(fielderr.Released("reader"))
	}
	if end := r.end.Load(); end != nil {
		return item, end.Err
	}
	answered := false
	defer func() {
		if v := recover(); v != nil {
			err = fielderr.Panic(v)
		} else if !answered {
			err = errGoexit
		}
		if err != nil {
			err = r.endWith(err)
		}
	}()
	item, err = from.Next()
	if end := r.end.Load(); err == nil && end != nil {
		drop(item)
		var none T
		item, err = none, end.Err
	}
	if err == nil && r.Fit != nil {
		item = r.Fit(item)
	}
	answered = true
	return item, err
}

func (r *Reader[T]) All(yield func(T, error) bool) {
	one := func(item T) bool {
		defer item.Release()
		return yield(item, nil)
	}
	for {
		item, err := r.Pull()
		if err == nil {
			if !one(item) {
				return
			}
			continue
		}
		if err != io.EOF { // itself: an error that wraps it is an error
			var none T
			yield(none, err)
		}
		return
	}
}

func (r *Reader[T]) Next() bool {
	r.dropCurrent(false)
	if r.Over.Load() {
		r.endWith(fielderr.Released("reader"))
		return false
	}
	defer r.finishQuietly()
	return r.take()
}

// take makes the next item the current one, and reports whether there is one.
func (r *Reader[T]) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	item, err := r.ask()
	if err != nil {
		return false
	}
	r.own.Lock()
	kept := !r.gone
	if kept {
		r.Current = item
	}
	r.own.Unlock()
	if !kept {
		drop(item)
		r.endWith(fielderr.Released("reader"))
	}
	return kept
}

// dropCurrent releases the current item, without a lock: that may call into C. After the
// last time, there is no other one.
func (r *Reader[T]) dropCurrent(last bool) {
	var none T
	r.own.Lock()
	item := r.Current
	r.Current = none
	r.gone = r.gone || last
	r.own.Unlock()
	if item != none {
		item.Release()
	}
}

// endWith ends the stream with an error, unless it has ended, and returns its end.
func (r *Reader[T]) endWith(err error) error {
	r.end.CompareAndSwap(nil, &StreamEnd{err})
	return r.end.Load().Err
}

// Err is the error that the stream ended with, or nil.
func (r *Reader[T]) Err() error {
	if end := r.end.Load(); end != nil && end.Err != io.EOF {
		return end.Err
	}
	return nil
}

// StreamEnd is how a stream ended: with io.EOF, or with an error.
type StreamEnd struct{ Err error }

// Counted is a *RecordBatch or an *Array.
type Counted interface {
	comparable
	Retain()
	Release()
}
