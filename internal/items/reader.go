// Package items is the core of readers: the sources of items, the stages of Map and Prefetch on top
// of them, and the end of a stream.
package items

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/watch"
)

// Reader is the part that RecordReader and ArrayReader have in common.
type Reader[T Counted] struct {
	Refs       refcount.Count
	DeviceType device.Type
	Fit        func(T) T               // applied to each item; nil: not
	Check      func(T) error           // checks an item that a program made
	Count      func(T) *refcount.Count // of an item that the reader lends to the program
	Copies     watch.Place             // has the waits for copies of the items
	ending
	exports

	end atomic.Pointer[StreamEnd] // nil before the end

	mu      sync.Mutex // held during calls of the source, which are serialised
	stages  stages[T]
	stopped bool // the source was closed, or is about to be

	own     sync.Mutex // guards Current and gone; no other lock is taken while it is held
	Current T
	gone    bool // the last reference was dropped: no current item is kept
}

// Init sets up a reader with one reference. kind names it in panics and lists of live objects.
func (r *Reader[T]) Init(kind string, t device.Type, s Source[T]) {
	r.Refs.InitTraced(kind)
	r.DeviceType, r.stages.source = t, s
	r.ending.init()
}

// Hold adds a reference, unless the last one is gone.
func (r *Reader[T]) Hold() bool { return r.Refs.TryRetain() }

// Pull returns the next item, owned by the caller, or the error that ended the stream:
// io.EOF after the last item. A panic in the program's code is an error.
func (r *Reader[T]) Pull() (item T, err error) {
	if r.Over.Load() { // do not wait for a running call
		return item, r.endWith(fielderr.Released("reader"))
	}
	defer r.finishQuietly()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ask()
}

// ask is Pull for the holder of mu. An item that arrives after Close is dropped; one that arrives
// after the last Release is returned to the caller.
func (r *Reader[T]) ask() (item T, err error) {
	from := r.stages.apply(&r.Over)
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
			err = fielderr.Goexit
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

// All yields the items that are left, then an error if the stream ended with one.
func (r *Reader[T]) All(yield func(T, error) bool) {
	one := func(item T) bool {
		r.Count(item).Own()
		defer item.Release()
		defer r.Count(item).Disown()
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
		if err != io.EOF {
			var none T
			yield(none, err)
		}
		return
	}
}

// Next makes the next item the current one, and reports whether there is one.
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
		r.Count(item).Own()
		r.Current = item
	}
	r.own.Unlock()
	if !kept {
		drop(item)
		r.endWith(fielderr.Released("reader"))
	}
	return kept
}

// dropCurrent releases the current item, without holding a lock, since that may call into C. After
// last, no current item is kept.
func (r *Reader[T]) dropCurrent(last bool) {
	var none T
	r.own.Lock()
	item := r.Current
	r.Current = none
	r.gone = r.gone || last
	r.own.Unlock()
	if item != none {
		r.Count(item).Disown()
		item.Release()
	}
}

// Err is the error that the stream ended with, or nil.
func (r *Reader[T]) Err() error {
	if end := r.end.Load(); end != nil && end.Err != io.EOF {
		return end.Err
	}
	return nil
}

// endWith ends the stream with an error, unless it has ended, and returns its end.
func (r *Reader[T]) endWith(err error) error {
	r.end.CompareAndSwap(nil, &StreamEnd{asReported(err)})
	return r.end.Load().Err
}

// Fail ends the stream with an error that came before its first item, unless it has ended. Even io.EOF
// is an error then.
func (r *Reader[T]) Fail(err error) {
	if err == io.EOF {
		err = &cutOff{err}
	}
	r.endWith(err)
}

// add appends a stage for the items that are left, unless the stream has ended.
func (r *Reader[T]) add(on stage[T]) {
	r.stages.add(on, func() bool { return r.Over.Load() || r.end.Load() != nil })
}

// Release drops a reference and reports whether it was the last one.
func (r *Reader[T]) Release() (last bool) {
	if !r.Refs.Release() {
		return false
	}
	defer r.live.Part()
	defer r.finish()
	r.Over.Store(true)
	r.stages.top().Interrupt() // otherwise a call of Next on another goroutine may wait for ever
	r.dropCurrent(true)
	return true
}

// ReleaseThen drops a reference and calls f afterwards: for the last reference, when the source is
// no longer in use.
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

// Close ends the stream, and waits until the source is no longer in use, or ctx is done.
func (r *Reader[T]) Close(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpClose, ctx); err != nil {
		return err
	}
	r.Interrupt()
	r.cancelDerived()
	if !r.closer.Swap(true) && r.source.Add() {
		// On a goroutine of its own, since closing the source may block.
		Goroutines.Add(1)
		go func() {
			defer r.source.Part()
			defer Goroutines.Add(-1)
			r.finishQuietly()
		}()
	}
	if IsClosed(r.done) {
		r.Copies.Publish() // the copies that it has waited for are complete
		return nil         // even if ctx is done
	}
	select {
	case <-r.done:
		r.Copies.Publish() // the copies that it has waited for are complete
		return nil
	case <-ctx.Done():
		return fielderr.ContextError(ctx, fielderr.OpClose)
	}
}

// Interrupt ends the stream, and the waits of a running call.
func (r *Reader[T]) Interrupt() {
	r.endWith(ClosedReader())
	r.Over.Store(true)
	r.stages.top().Interrupt()
}

// finish closes the source, once, if the stream is over and no call is running. The
// goroutine that held mu calls it afterwards.
func (r *Reader[T]) finish() {
	if r.Over.Load() && r.stop() {
		r.stages.top().Close(r.source.Part)
	}
}

// finishQuietly is finish for callers that cannot report a panic.
func (r *Reader[T]) finishQuietly() {
	defer tellPanic()
	r.finish()
}

// stop reports whether the caller has to close the source, which is not read any more.
func (r *Reader[T]) stop() bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	stopped := r.stopped
	r.stopped = true
	return !stopped
}
