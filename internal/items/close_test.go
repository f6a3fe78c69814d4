package items_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Close ends a reader early, and returns when its source is not in use any more.

func TestCloseWaitsForACallUnderWay(t *testing.T) {
	eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
		called, answer := s.holdBack(1)
		r := open()
		nextReturns(t, r, 0)
		read := make(chan error)
		go func() { r.Next(); read <- r.Err() }()
		<-called
		for range 2 {
			assert.ErrorIs(t, r.Close(done), context.Canceled)
		}
		assert.NotZero(t, s.interrupts.Load())
		isClosed(t, r)
		assert.Zero(t, s.closes.Load(), "it is being asked")
		closed := make(chan error)
		go func() { closed <- r.Close(background) }()
		answer()
		assert.NoError(t, <-closed)
		assert.EqualValues(t, 1, s.closes.Load())
		assert.EqualValues(t, 2, s.calls.Load(), "nothing is asked any more")
		assert.ErrorIs(t, <-read, fielderr.ErrReleased)
		closes(t, r)
		r.Release()
		closes(t, r)
	})
}

// A reader of which nothing was asked has nothing to wait for.
func TestCloseBeforeTheFirstItem(t *testing.T) {
	eachLayer(t, 3, func(f *fixture, s *source, open func() *reader) {
		r := open()
		closes(t, r)
		assert.EqualValues(t, 1, s.closes.Load())
		assert.Zero(t, s.calls.Load())
		isClosed(t, r)
		r.Release()
	})
}

// Close after the last Release waits for the call that is under way.
func TestCloseAfterRelease(t *testing.T) {
	eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
		called, answer := s.holdBack(1)
		r := open()
		nextReturns(t, r, 0)
		var next sync.WaitGroup
		next.Go(func() { assert.False(t, r.Next()) })
		<-called
		r.Release()
		assert.ErrorIs(t, r.Close(done), context.Canceled)
		answer()
		next.Wait()
		closes(t, r)
		assert.EqualValues(t, 1, s.closes.Load())
	})
}

// The end of a source may block: Close returns with its context, and other calls do not wait.
func TestCloseWaitsForTheSource(t *testing.T) {
	for _, depth := range []int{0, 1} {
		f := begin(t)
		readers := items.LiveReaders.Load()
		begun, let := make(chan struct{}), make(chan struct{})
		s := f.source(1 << 40)
		s.stop = func() { close(begun); <-let }
		r := f.reader(s)
		r.Prefetch(depth)
		nextReturns(t, r, 0)
		assert.EqualError(t, r.Close(done), "cdevice: close: context canceled")
		<-begun // on the goroutine of Close: Release, if it were first, would call stop
		isClosed(t, r)
		within.Seconds(t, "Release", func() error { r.Release(); return nil })
		assert.ErrorIs(t, r.Close(done), context.Canceled)
		assert.Equal(t, readers+1, items.LiveReaders.Load(), "it is not over")
		var unused atomic.Bool
		r.WhenUnused(func() { unused.Store(true) })
		close(let)
		closes(t, r)
		for range 20 {
			assert.NoError(t, r.Close(done), "there is nothing to wait for")
		}
		within.Eventually(t, "the end", func() bool {
			return items.LiveReaders.Load() == readers && items.Goroutines.Load() == 0 && unused.Load()
		})
		r.WhenUnused(func() { unused.Store(false) })
		assert.False(t, unused.Load(), "called at once")
	}
}

func TestCloseWithoutAContext(t *testing.T) {
	f := begin(t)
	r := f.reader(f.source(1))
	var none context.Context
	assert.EqualError(t, r.Close(none), "cdevice: close: ctx = nil, want a context: invalid")
	nextReturns(t, r, 0) // nothing was closed
	r.Release()
}

// Close drops no reference, and keeps the current item.
func TestCloseKeepsTheReference(t *testing.T) {
	f := begin(t)
	readers := items.LiveReaders.Load()
	r := f.reader(f.source(9))
	nextReturns(t, r, 0)
	closes(t, r)
	assert.Equal(t, readers+1, items.LiveReaders.Load())
	assert.Equal(t, 0, r.Current.value)
	assert.True(t, r.Current.refs.Alive())
	r.Release()
	assert.Equal(t, readers, items.LiveReaders.Load())
}

// Close waits for a function of Map that is under way. A prefetcher closes the source below the function at once.
func TestCloseWaitsForAFunctionOfMap(t *testing.T) {
	for name, stages := range map[string]func(r *reader, do func(*number) (*number, error)){
		"Map":              (*reader).Map,
		"below a Prefetch": func(r *reader, do func(*number) (*number, error)) { r.Map(do); r.Prefetch(2) },
		"above a Prefetch": func(r *reader, do func(*number) (*number, error)) { r.Prefetch(2); r.Map(do) },
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			inside, let := make(chan struct{}), make(chan struct{})
			s := f.source(9)
			r := f.reader(s)
			calls := 0
			stages(r, func(n *number) (*number, error) {
				if calls++; calls == 2 {
					close(inside)
					<-let
				}
				return f.item(n.value), nil
			})
			nextReturns(t, r, 0)
			next := make(chan bool)
			go func() { next <- r.Next() }()
			<-inside
			assert.ErrorIs(t, r.Close(done), context.Canceled)
			if name != "above a Prefetch" {
				assert.Zero(t, s.closes.Load(), "the function is called where it is asked")
			}
			closed := make(chan error)
			go func() { closed <- r.Close(background) }()
			close(let)
			assert.NoError(t, <-closed)
			assert.EqualValues(t, 1, s.closes.Load())
			assert.False(t, <-next)
			assert.Equal(t, 2, calls, "no further item is asked for")
			r.Release()
		})
	}
}

// The source itself closes its reader, which waits for the source: ctx ends that. The item is dropped.
func TestCloseInsideTheSource(t *testing.T) {
	eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
		var r *reader
		closing := func() { assert.ErrorIs(t, r.Close(done), context.Canceled) }
		s.on[0], s.stop = closing, closing
		r = open()
		assert.False(t, r.Next())
		assert.ErrorIs(t, r.Err(), fielderr.ErrReleased)
		closes(t, r)
		r.Release()
	})
}

// Between two items, no call is under way.
func TestCloseInsideALoop(t *testing.T) {
	eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
		r := open()
		var errs []error
		for item, err := range r.All {
			if errs = append(errs, err); err == nil {
				closes(t, r)
				assert.True(t, item.refs.Alive(), "it is the loop's")
			}
		}
		assert.Len(t, errs, 2)
		assert.ErrorIs(t, errs[1], fielderr.ErrReleased)
		r.Release()
	})
}

// The end of a source panics, ends its goroutine, or releases the reader.
func TestSourceWhoseEndMisbehaves(t *testing.T) {
	for name, row := range map[string]struct {
		stop   func(*reader)
		panics int64
	}{
		"panics":             {func(*reader) { panic("in stop") }, 1},
		"ends its goroutine": {func(*reader) { runtime.Goexit() }, 0},
		"releases":           {func(r *reader) { r.Release() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
				var r *reader
				s.stop = func() { row.stop(r) }
				r = open()
				nextReturns(t, r, 0)
				closes(t, r)
				idle(t)
				assert.Equal(t, row.panics, f.panics.Swap(0))
				if name != "releases" {
					r.Release()
				}
			})
		})
	}
	// A panic on the program's goroutine is the program's; what waits for the end is told all the same.
	f := begin(t)
	s := f.source(1)
	s.stop = func() { panic("in stop") }
	r := f.reader(s)
	ended := false
	assert.PanicsWithValue(t, "in stop", func() { r.ReleaseThen(func() { ended = true }) })
	assert.True(t, ended)
}

// However many close, read and release at once, the source is closed once, after the last call, and none of
// them waits for ever.
func TestCloseHammer(t *testing.T) {
	for name := range new(fixture).layers() {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			for range 30 {
				s := f.source(1 << 40)
				r := f.layers()[name](s)
				var all sync.WaitGroup
				for i := range 3 {
					r.Hold()
					all.Go(func() { defer r.Release(); _, _ = drain(r) })
					r.Hold()
					all.Go(func() {
						defer r.Release()
						for range i {
							runtime.Gosched()
						}
						assert.NoError(t, r.Close(background))
						assert.EqualValues(t, 1, s.closes.Load())
					})
				}
				r.Release()
				all.Wait()
			}
		})
	}
}

// A use of the source, and the waits of readers that are made of this one, end with Close.
func TestCloseOfAReaderInUse(t *testing.T) {
	f := begin(t)
	r := f.reader(f.source(1))
	var cancelled atomic.Int64
	first, second := new(int), new(int)
	r.Deriving(first, func() { cancelled.Add(1) })
	r.Deriving(second, func() { cancelled.Add(10) })
	r.Derived(second)
	use := r.Use()
	assert.ErrorIs(t, r.Close(done), context.Canceled)
	assert.EqualValues(t, 1, cancelled.Load(), "of those that are left")
	released := make(chan struct{})
	r.ReleaseThen(func() { close(released) })
	assert.False(t, items.IsClosed(released))
	use.Part()
	closes(t, r)
	<-released
	assert.Nil(t, r.Use())
	r.Use().Part() // does nothing

	r = f.reader(f.source(1))
	r.Hold()
	called := false
	r.ReleaseThen(func() { called = true })
	assert.True(t, called, "at once, of a reference that is not the last")
	r.Release()
}
