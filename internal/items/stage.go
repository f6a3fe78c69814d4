package items

import "sync"

// Stages are the sources that Map and Prefetch put on top of the source of a reader. They wait in a
// list until the next item is read, since a running call holds the reader's mu, and Map and
// Prefetch must not wait for it.

// stages is the source of a reader, and the stages that are not on top of it yet.
type stages[T Counted] struct {
	mu      sync.Mutex // no program's code is called, and no other lock taken, while it is held
	supply  Source[T]  // changed by the holder of the reader's mu only
	pending []stage[T]
}

// stage returns a source on top of another one, which it takes.
type stage[T Counted] func(Source[T]) Source[T]

// top returns the current source.
func (s *stages[T]) top() Source[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.supply
}
