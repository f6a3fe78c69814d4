package items

import "sync"

// Stages are what Map and Prefetch put on top of the supply of a reader. They wait in a list
// until the next item is asked for: a call that is under way holds the reader's mu, and neither
// Map nor Prefetch waits for it.

// stages is the supply of a reader, and the stages that are not on top of it yet.
type stages[T Counted] struct {
	mu      sync.Mutex // no code of a program, and no other lock, is reached with it
	supply  Source[T]  // changed by the holder of the reader's mu only
	pending []stage[T]
}

// stage puts a supply on top of another one, which it takes.
type stage[T Counted] func(Source[T]) Source[T]

// top is the supply as it is now.
func (s *stages[T]) top() Source[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.supply
}
