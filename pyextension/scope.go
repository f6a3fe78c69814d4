//go:build cgo && unix

package pyextension

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// scope is the context of a call of a function, and the list of objects to release at
// its end. The context lives longer than the call if readers that the function returned do.
type scope struct {
	thread uint64       // that waits for the call, as pthread_self has it
	users  atomic.Int64 // the call, readers that it returned, streams of these that were exported
	atEnd  []releaser
	// borrowed are the arguments that hold Arrow data: a result that is one of them is not owned by
	// the caller yet.
	borrowed []any

	atEndMemory    [4]releaser
	borrowedMemory [2]any

	isClosed bool
	parents  []*scope
	sources  []*iterable // that readers of the call depend on, beside those of parents

	mu     sync.Mutex
	ctx    context.Context // nil until it is asked for: many functions need none
	cancel context.CancelCauseFunc
	ended  bool
}

func newScope() *scope {
	s := &scope{}
	s.begin()
	return s
}

func (s *scope) begin() {
	s.users.Store(1)
	s.atEnd, s.borrowed = s.atEndMemory[:0], s.borrowedMemory[:0]
}

// context returns the context of the call.
func (s *scope) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithCancelCause(context.Background())
		if s.ended {
			s.cancel(context.Canceled)
		}
	}
	return s.ctx
}

// hold keeps the context until drop.
func (s *scope) hold() { s.users.Add(1) }

// under keeps the context of another scope as long as its own, for objects that depend on the other.
func (s *scope) under(parent *scope) {
	parent.hold()
	s.parents = append(s.parents, parent)
}

// drop ends the context with the last user.
func (s *scope) drop() {
	if s.users.Add(-1) > 0 {
		return
	}
	s.end()
	for _, source := range s.sources {
		source.forget()
	}
	for _, p := range s.parents {
		p.drop()
	}
}

// end ends the context now.
func (s *scope) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.cancel != nil {
		s.cancel(context.Canceled)
	}
}

// waitsFor reports whether a reader of this call waits for a source in Python that runs on a thread.
func (s *scope) waitsFor(thread uint64) bool {
	for _, source := range s.sources {
		if source.runsOn(thread) {
			return true
		}
	}
	return slices.ContainsFunc(s.parents, func(p *scope) bool { return p.waitsFor(thread) })
}

type releaser interface{ Release() }

// defers releases v at the end of the call.
func (s *scope) defers(v releaser) { s.atEnd = append(s.atEnd, v) }

// close ends the call: it releases what was deferred, the last first, as defer does. If one of them
// panics, the next close goes on behind it.
func (s *scope) close() {
	for len(s.atEnd) > 0 {
		last := len(s.atEnd) - 1
		v := s.atEnd[last]
		s.atEnd = s.atEnd[:last]
		v.Release()
	}
	s.isClosed = true
	s.drop()
}

func (s *scope) closed() bool { return s.isClosed }

// owned returns a function that releases its argument at the end of the call.
func owned[T releaser](sc *scope) func(T, error) (T, error) {
	return func(v T, err error) (T, error) {
		if err == nil {
			sc.defers(v)
		}
		return v, err
	}
}
