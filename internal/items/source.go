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

// Source produces the items of a reader.
type Source[T any] interface {
	// Next returns the next item, owned by the caller, or an error: io.EOF at the end. It is called
	// by one goroutine at a time, and not again after an error.
	Next() (T, error)
	// Interrupt ends the wait of a running Next, if the source can: no item is needed any more. It
	// does not block. Any goroutine may call it, at any time.
	Interrupt()
	// Close ends the source. It is called once, when no Next is running. It calls done once, on any
	// goroutine, when the resources of the source are no longer in use, before Close returns or
	// long after: even if a program's code panics or ends its goroutine.
	Close(done func())
}

// Result holds the results of a call of Next.
type Result[T Counted] struct {
	Item T
	Err  error
}

// Drop releases the item, if there is one.
func (p *Result[T]) Drop() {
	if p.Err == nil {
		drop(p.Item)
	}
}

// drop releases an item that was not delivered. A panic there is reported to bridge.OnPanic.
func drop[T Counted](item T) {
	defer tellPanic()
	item.Release()
}

// Function is a source that calls a function.
type Function[T Counted] struct {
	Ask   func() (T, error)
	Check func(T) error // checks an item of a program's function; nil: not
	Stop  func()        // may be nil
	// StopThen is for a stop that may end after it has returned: it calls done at its end.
	StopThen func(done func())
}

// Next calls Ask, and checks the item.
func (f *Function[T]) Next() (T, error) {
	var none T
	item, err := f.Ask()
	done := false
	defer func() { // even if Check panics: types may be a program's
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

// Interrupt does nothing: a function cannot be interrupted.
func (*Function[T]) Interrupt() {}

// Close calls Stop or StopThen.
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

// Bounded is a source that ends with a context: once that is done, it returns no item, even if one
// is ready, and a wait ends, if the source below can end it.
type Bounded[T Counted] struct {
	ctx  context.Context
	op   string
	from Source[T]
	stop func() bool // stops watching the context; nil until the first Next
}

// NewBounded returns a source that ends with ctx. Its error names the operation op.
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

// Next returns the next item of the source below, or the context's error.
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

// Interrupt interrupts the source below.
func (b *Bounded[T]) Interrupt() { b.from.Interrupt() }

// Close stops watching the context, and closes the source below.
func (b *Bounded[T]) Close(done func()) {
	if b.stop != nil {
		b.stop()
	}
	b.from.Close(done)
}

// Sequence is the source of an iterator. The iterator runs on a goroutine of its own, and only
// during a call of Next. iter.Pull must not be used on the threads of callbacks from C.
type Sequence[T Counted] struct {
	Seq   iter.Seq2[T, error]
	Check func(T) error // checks the items that the iterator yields
	ask   chan struct{} // nil until the first Next; closed to stop the iterator
	got   chan Result[T]
}

// Next lets the iterator run until it yields or ends.
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

// Interrupt does nothing: an iterator cannot be interrupted.
func (*Sequence[T]) Interrupt() {}

// Close makes the iterator's yield return false, and waits until the iterator has returned.
func (s *Sequence[T]) Close(done func()) {
	defer done()
	if s.ask == nil {
		return
	}
	close(s.ask)
	for range s.got { // until the iterator has returned
	}
}

// run answers every ask once. The items that the iterator yields are borrowed, and retained here.
func (s *Sequence[T]) run(ask <-chan struct{}, got chan<- Result[T]) {
	defer close(got)
	defer Goroutines.Add(-1)
	asked := false
	last := Result[T]{Err: errGoexit}
	defer func() {
		switch v := recover(); {
		case v == nil:
		case !asked:
			bridge.OnPanic(v, debug.Stack()) // it was stopped: no caller can get the error
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

// errGoexit is the error for a program's code that ended its goroutine.
var errGoexit = errors.New("cdevice: the code that makes the items of the stream ended its goroutine")

// Quietly calls f, whose errors no caller can get. A panic is reported to bridge.OnPanic, and not
// passed on.
func Quietly(f func()) {
	defer tellPanic()
	f()
}

// tellPanic recovers a panic that no caller can get, and reports it to bridge.OnPanic.
func tellPanic() {
	if v := recover(); v != nil {
		bridge.OnPanic(v, debug.Stack())
	}
}
