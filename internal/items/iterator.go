package items

import (
	"io"
	"iter"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Sequence is the source of an iterator. The iterator runs on a goroutine of its own, and only
// during a call of Next. iter.Pull must not be used on the threads of callbacks from C.
type Sequence[T Counted] struct {
	Seq    iter.Seq2[T, error]
	Check  func(T) error // checks the items that the iterator yields
	Unused func()        // called on a goroutine of its own if Seq was not called; may be nil
	ask    chan struct{} // nil until the first Next; closed to stop the iterator
	got    chan Result[T]
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
	if s.ask == nil && s.Unused != nil {
		Background(func() {
			defer done()
			defer tellPanic()
			s.Unused()
		})
		return
	}
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
	last := Result[T]{Err: fielderr.Goexit}
	defer func() {
		switch v := recover(); {
		case v == nil:
		case !asked:
			bridge.OnPanic(v, debug.Stack()) // it was stopped: no caller can get the error
		case last.Err == fielderr.Goexit: // it had not failed before
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
			last.Err = NoItemAtEnd(item, err)
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
