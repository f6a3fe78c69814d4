package cdevice

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// supply is where the items of a reader come from.
type supply[T any] interface {
	// next returns the next item, owned by the caller, or io.EOF, or what went wrong. It
	// is called by one goroutine at a time, and not again after an error.
	next() (T, error)
	// interrupt makes a next that is under way give up its waiting, where that is possible:
	// no item is wanted any more. It does not block. Any goroutine may call it, at any time.
	interrupt()
	// close ends the supply. It is called once, when no next is under way. done is called
	// once, on any goroutine, when what the items come from is not in use any more, even if
	// the code that is called for that panics or ends its goroutine: that may be before
	// close returns, or long after.
	close(done func())
}

// pulled is what a supply's next returned.
type pulled[T counted] struct {
	item T
	err  error
}

func (p *pulled[T]) drop() {
	if p.err == nil {
		drop(p.item)
	}
}

// drop releases an item that is not delivered. No caller is told of a panic there.
func drop[T counted](item T) {
	defer tellPanic()
	item.Release()
}

// function is the supply of a function.
type function[T counted] struct {
	ask   func() (T, error)
	check func(T) error // of what a program's function gives; nil: none
	stop  func()        // may be nil
	// stopThen is for a stop that may be over later than it returns: it calls done then.
	stopThen func(done func())
}

func (f *function[T]) next() (T, error) {
	var none T
	item, err := f.ask()
	done := false
	defer func() { // even if a check panics: types may be a program's
		if !done && item != none {
			item.Release()
		}
	}()
	if err != nil {
		return none, err
	}
	if f.check != nil {
		if err := f.check(item); err != nil {
			return none, err
		}
	}
	done = true
	return item, nil
}

func (*function[T]) interrupt() {}

func (f *function[T]) close(done func()) {
	if f.stopThen != nil {
		f.stopThen(done)
		return
	}
	defer done()
	if f.stop != nil {
		f.stop()
	}
}

// bounded is a supply that ends with a context: once that is done, it gives no item, not
// even one that is ready.
type bounded[T counted] struct {
	ctx  context.Context
	op   string
	from supply[T]
}

func (b *bounded[T]) next() (item T, err error) {
	if err := fielderr.ContextError(b.ctx, b.op); err != nil {
		return item, err
	}
	item, err = b.from.next()
	if err != nil {
		return item, err
	}
	if err := fielderr.ContextError(b.ctx, b.op); err != nil {
		drop(item)
		var none T
		return none, err
	}
	return item, nil
}

func (b *bounded[T]) interrupt() { b.from.interrupt() }

func (b *bounded[T]) close(done func()) { b.from.close(done) }

// sequence is the supply of an iterator. The iterator runs on a goroutine of its own, and
// only while an item is asked for. iter.Pull does not do: it must not be used on the
// threads of callbacks from C.
type sequence[T counted] struct {
	seq   iter.Seq2[T, error]
	check func(T) error // of what the iterator yields
	ask   chan struct{} // nil until the first next; closed to stop the iterator
	got   chan pulled[T]
}

func (s *sequence[T]) next() (T, error) {
	if s.ask == nil {
		s.ask, s.got = make(chan struct{}), make(chan pulled[T])
		goroutines.Add(1)
		go s.run(s.ask, s.got)
	}
	s.ask <- struct{}{}
	p := <-s.got
	return p.item, p.err
}

func (*sequence[T]) interrupt() {}

func (s *sequence[T]) close(done func()) {
	defer done()
	if s.ask == nil {
		return
	}
	close(s.ask)
	for range s.got { // until the iterator has returned
	}
}

// run answers every ask once. What the iterator yields is borrowed, and retained here.
func (s *sequence[T]) run(ask <-chan struct{}, got chan<- pulled[T]) {
	defer close(got)
	defer goroutines.Add(-1)
	asked := false
	last := pulled[T]{err: errGoexit}
	defer func() {
		switch v := recover(); {
		case v == nil:
		case !asked:
			bridge.OnPanic(v, debug.Stack()) // it was stopped: nobody asks any more
		case last.err == errGoexit: // it had not failed before
			last.err = fielderr.Panic(v)
		}
		if asked {
			got <- last
		}
	}()
	if _, asked = <-ask; !asked {
		return
	}
	for item, err := range s.seq {
		if err == nil {
			err = s.check(item)
		}
		if err != nil {
			last.err = err
			return
		}
		item.Retain()
		asked = false
		got <- pulled[T]{item: item}
		if _, asked = <-ask; !asked {
			return
		}
	}
	last.err = io.EOF
}

// errGoexit is the error of a program's code that ended its goroutine.
var errGoexit = errors.New("cdevice: the code that makes the items of the stream ended its goroutine")

// quietly calls what nobody waits for, or what comes when all that counts is done: a panic
// there is told, and goes no further.
func quietly(f func()) {
	defer tellPanic()
	f()
}

// tellPanic ends a panic on a goroutine of ours that nobody waits for.
func tellPanic() {
	if v := recover(); v != nil {
		bridge.OnPanic(v, debug.Stack())
	}
}
