package items

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Source is where the items of a reader come from.
type Source[T any] interface {
	// next returns the next item, owned by the caller, or io.EOF, or what went wrong. It
	// is called by one goroutine at a time, and not again after an error.
	Next() (T, error)
	// interrupt makes a next that is under way give up its waiting, where that is possible:
	// no item is wanted any more. It does not block. Any goroutine may call it, at any time.
	Interrupt()
	// close ends the supply. It is called once, when no next is under way. done is called
	// once, on any goroutine, when what the items come from is not in use any more, even if
	// the code that is called for that panics or ends its goroutine: that may be before
	// close returns, or long after.
	Close(done func())
}

// Result is what a supply's next returned.
type Result[T Counted] struct {
	Item T
	Err  error
}

func (p *Result[T]) Drop() {
	if p.Err == nil {
		drop(p.Item)
	}
}

// drop releases an item that is not delivered. No caller is told of a panic there.
func drop[T Counted](item T) {
	defer tellPanic()
	item.Release()
}

// Function is the supply of a function.
type Function[T Counted] struct {
	Ask   func() (T, error)
	Check func(T) error // of what a program's function gives; nil: none
	Stop  func()        // may be nil
	// StopThen is for a stop that may be over later than it returns: it calls done then.
	StopThen func(done func())
}

func (f *Function[T]) Next() (T, error) {
	var none T
	item, err := f.Ask()
	done := false
	defer func() { // even if a check panics: types may be a program's
		if !done && item != none {
			item.Release()
		}
	}()
	if err != nil {
		return none, err
	}
	if f.Check != nil {
		if err := f.Check(item); err != nil {
			return none, err
		}
	}
	done = true
	return item, nil
}

func (*Function[T]) Interrupt() {}

func (f *Function[T]) Close(done func()) {
	if f.StopThen != nil {
		f.StopThen(done)
		return
	}
	defer done()
	if f.Stop != nil {
		f.Stop()
	}
}

// Bounded is a source that ends with a context: once that is done, it gives no item, not
// even one that is ready, and the wait for one ends, where the source below can end it.
type Bounded[T Counted] struct {
	ctx  context.Context
	op   string
	from Source[T]
	stop func() bool // forgets the context; nil until the first Next
}

// NewBounded bounds a source by ctx. op is the operation that its error names.
func NewBounded[T Counted](ctx context.Context, op string, from Source[T]) *Bounded[T] {
	return &Bounded[T]{ctx: ctx, op: op, from: from}
}

// under puts a source on top of the one below, under the same context.
func (b *Bounded[T]) under(on func(Source[T]) Source[T]) *Bounded[T] {
	if b.stop != nil {
		b.stop()
	}
	return NewBounded(b.ctx, b.op, on(b.from))
}

func (b *Bounded[T]) Next() (item T, err error) {
	if err := fielderr.ContextError(b.ctx, b.op); err != nil {
		return item, err
	}
	if b.stop == nil {
		b.stop = context.AfterFunc(b.ctx, b.from.Interrupt)
	}
	item, err = b.from.Next()
	if err == io.EOF {
		return item, err
	}
	if ended := fielderr.ContextError(b.ctx, b.op); ended != nil {
		if err == nil {
			drop(item)
		}
		var none T
		return none, ended
	}
	return item, err
}

func (b *Bounded[T]) Interrupt() { b.from.Interrupt() }

// Close forgets the context first.
func (b *Bounded[T]) Close(done func()) {
	if b.stop != nil {
		b.stop()
	}
	b.from.Close(done)
}

// Sequence is the supply of an iterator. The iterator runs on a goroutine of its own, and
// only while an item is asked for. iter.Pull does not do: it must not be used on the
// threads of callbacks from C.
type Sequence[T Counted] struct {
	Seq   iter.Seq2[T, error]
	Check func(T) error // of what the iterator yields
	ask   chan struct{} // nil until the first next; closed to stop the iterator
	got   chan Result[T]
}

func (s *Sequence[T]) Next() (T, error) {
	if s.ask == nil {
		s.ask, s.got = make(chan struct{}), make(chan Result[T])
		Goroutines.Add(1)
		go s.run(s.ask, s.got)
	}
	s.ask <- struct{}{}
	p := <-s.got
	return p.Item, p.Err
}

func (*Sequence[T]) Interrupt() {}

func (s *Sequence[T]) Close(done func()) {
	defer done()
	if s.ask == nil {
		return
	}
	close(s.ask)
	for range s.got { // until the iterator has returned
	}
}

// run answers every ask once. What the iterator yields is borrowed, and retained here.
func (s *Sequence[T]) run(ask <-chan struct{}, got chan<- Result[T]) {
	defer close(got)
	defer Goroutines.Add(-1)
	asked := false
	last := Result[T]{Err: errGoexit}
	defer func() {
		switch v := recover(); {
		case v == nil:
		case !asked:
			bridge.OnPanic(v, debug.Stack()) // it was stopped: nobody asks any more
		case last.Err == errGoexit: // it had not failed before
			last.Err = fielderr.Panic(v)
		}
		if asked {
			got <- last
		}
	}()
	if _, asked = <-ask; !asked {
		return
	}
	for item, err := range s.Seq {
		if err == nil {
			err = s.Check(item)
		}
		if err != nil {
			last.Err = err
			return
		}
		item.Retain()
		asked = false
		got <- Result[T]{Item: item}
		if _, asked = <-ask; !asked {
			return
		}
	}
	last.Err = io.EOF
}

// errGoexit is the error of a program's code that ended its goroutine.
var errGoexit = errors.New("cdevice: the code that makes the items of the stream ended its goroutine")

// Quietly calls what nobody waits for, or what comes when all that counts is done: a panic
// there is told, and goes no further.
func Quietly(f func()) {
	defer tellPanic()
	f()
}

// tellPanic ends a panic on a goroutine of ours that nobody waits for.
func tellPanic() {
	if v := recover(); v != nil {
		bridge.OnPanic(v, debug.Stack())
	}
}
