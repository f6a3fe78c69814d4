package items

import (
	"sync"
	"sync/atomic"
)

// Stages are the sources that Map and Prefetch put on top of the source of a reader. They wait in a
// list until the next item is read, since a running call holds the reader's mu, and Map and
// Prefetch must not wait for it.

// stages is the source of a reader, and the stages that are not on top of it yet.
type stages[T Counted] struct {
	mu      sync.Mutex // no program's code is called, and no other lock taken, while it is held
	source  Source[T]  // changed by the holder of the reader's mu only
	pending []stage[T]
}

// stage returns a source on top of another one, which it takes.
type stage[T Counted] func(Source[T]) Source[T]

// top returns the current source.
func (s *stages[T]) top() Source[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source
}

// apply puts the pending stages on top and returns the source to read from; nil if the stream is
// over. Close sets over before it interrupts the top source: so it interrupts the source that is
// read.
func (s *stages[T]) apply(over *atomic.Bool) Source[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over.Load() {
		return nil
	}
	for _, on := range s.pending {
		if b, ok := s.source.(*Bounded[T]); ok { // stages go below it, so that no item is delivered once its context is done
			s.source = b.under(on)
		} else {
			s.source = on(s.source)
		}
	}
	s.pending = nil
	return s.source
}

// add appends a stage, unless the stream has ended.
func (s *stages[T]) add(on stage[T], ended func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ended() {
		s.pending = append(s.pending, on)
	}
}
