package cdevice

import "sync"

// Stages are what Map and Prefetch put on top of the supply of a reader. They wait in a list
// until the next item is asked for: a call that is under way holds the reader's mu, and neither
// Map nor Prefetch waits for it.

// stages is the supply of a reader, and the stages that are not on top of it yet.
type stages[T counted] struct {
	mu      sync.Mutex // no code of a program, and no other lock, is reached with it
	supply  supply[T]  // changed by the holder of the reader's mu only
	pending []stage[T]
}

// stage puts a supply on top of another one, which it takes.
type stage[T counted] func(supply[T]) supply[T]

// top is the supply as it is now.
func (s *stages[T]) top() supply[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.supply
}

// apply puts the pending stages on top and returns the supply to be asked; nil if the stream is
// over. Close sets over before it interrupts the top: so it interrupts the supply that is asked.
func (r *reader[T]) apply() supply[T] {
	s := &r.stages
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.over.Load() {
		return nil
	}
	for _, on := range s.pending {
		if b, ok := s.supply.(*bounded[T]); ok { // no item is given once its context is done
			s.supply = &bounded[T]{b.ctx, b.op, on(b.from)}
		} else {
			s.supply = on(s.supply)
		}
	}
	s.pending = nil
	return s.supply
}

// add makes the items that are left go through a stage, unless the stream has ended.
func (r *reader[T]) add(on stage[T]) {
	s := &r.stages
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.over.Load() && r.end.Load() == nil {
		s.pending = append(s.pending, on)
	}
}
