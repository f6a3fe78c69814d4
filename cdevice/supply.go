package cdevice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// supply is where the items of a reader come from.
type supply[T any] interface {
	// next returns the next item, owned by the caller, or io.EOF, or what went wrong. It
	// is called by one goroutine at a time, and not again after an error.
	next() (T, error)
	// close ends the supply. It is called once, when no next is under way.
	close()
}

// pulled is what a supply's next returned.
type pulled[T counted] struct {
	item T
	err  error
}

// drop lets go of what nobody takes. A panic there has nobody else to be told to.
func drop[T counted](p pulled[T]) {
	defer tellPanic()
	if p.err == nil {
		p.item.Release()
	}
}

// function is the supply of a function.
type function[T counted] struct {
	ask   func() (T, error)
	check func(T) error // of what a program's function gives; nil: none
	stop  func()        // may be nil
}

func (f *function[T]) next() (T, error) {
	var none T
	item, err := f.ask()
	done := false
	defer func() { // also when a check panics: types may be anybody's
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

func (f *function[T]) close() {
	if f.stop != nil {
		f.stop()
	}
}

// bounded is a supply that ends with a context: once that is done, it gives no item, not
// even one that is ready.
type bounded[T counted] struct {
	ctx  context.Context
	from supply[T]
}

func (b *bounded[T]) next() (item T, err error) {
	if err := contextError(b.ctx, "copy"); err != nil {
		return item, err
	}
	item, err = b.from.next()
	if err != nil {
		return item, err
	}
	if err := contextError(b.ctx, "copy"); err != nil {
		drop(pulled[T]{item: item})
		var none T
		return none, err
	}
	return item, nil
}

func (b *bounded[T]) close() { b.from.close() }

// contextError is the error of an operation whose context is done, or nil.
func contextError(ctx context.Context, operation string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cdevice: %s: %w", operation, err)
	}
	return nil
}

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
		go s.run(s.ask, s.got)
	}
	s.ask <- struct{}{}
	p := <-s.got
	return p.item, p.err
}

func (s *sequence[T]) close() {
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
	asked := false
	last := pulled[T]{err: errGoexit}
	defer func() {
		switch v := recover(); {
		case v == nil:
		case !asked:
			bridge.OnPanic(v, debug.Stack()) // it was stopped: nobody asks any more
		case last.err == errGoexit: // it had not failed before
			last.err = panicError(v)
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
var errGoexit = errors.New("cdevice: the source of the stream ended its goroutine")

// ahead is a supply that asks another one before it is asked itself: it holds depth items
// at most that nobody has taken. It begins with the first next.
type ahead[T counted] struct {
	from  supply[T]
	depth int
	got   chan pulled[T] // nil until the first next; closed when there is no more to come
	stop  chan struct{}
}

func (a *ahead[T]) next() (item T, err error) {
	if a.got == nil {
		// The goroutine holds one item, the channel the others.
		a.got, a.stop = make(chan pulled[T], a.depth-1), make(chan struct{})
		go a.run(a.got, a.stop)
	}
	p, ok := <-a.got
	if !ok {
		return item, errGoexit
	}
	return p.item, p.err
}

// close lets the goroutine finish a next that is under way, and does not wait for it.
func (a *ahead[T]) close() {
	if a.got == nil {
		a.from.close()
		return
	}
	close(a.stop)
}

func (a *ahead[T]) run(got chan pulled[T], stop <-chan struct{}) {
	defer func() { // also where the source ends the goroutine
		close(got)
		<-stop // the reader has no use for what is left
		for p := range got {
			drop(p)
		}
		defer tellPanic()
		a.from.close()
	}()
	for !isClosed(stop) {
		p := a.ask()
		select {
		case got <- p:
		case <-stop:
			drop(p)
			return
		}
		if p.err != nil {
			return
		}
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

func (a *ahead[T]) ask() (p pulled[T]) {
	defer func() {
		if v := recover(); v != nil {
			p = pulled[T]{err: panicError(v)}
		}
	}()
	p.item, p.err = a.from.next()
	return p
}

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
