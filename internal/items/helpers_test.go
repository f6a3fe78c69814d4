package items_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

type reader = items.Reader[*number]

var (
	background = context.Background()
	errSource  = errors.New("the source is on fire")
	errUnfit   = errors.New("the item does not fit")
)

// done is a context that has ended.
var done = func() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}()

// number is an item.
type number struct {
	value   int
	fits    int // how often Reader.Fit was applied to it
	refs    refcount.Count
	fixture *fixture
}

func (n *number) Retain() { n.refs.Retain() }

func (n *number) Release() {
	if n.refs.Release() {
		n.fixture.live.Add(-1)
	}
}

// fixture counts what a test must release, and the panics that no caller was told.
type fixture struct {
	*testing.T
	live   atomic.Int64
	panics atomic.Int64
}

// begin checks at the end of the test that no item, reader or goroutine is left. A panic that no caller is
// told fails the test, unless the test takes it out of panics.
func begin(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t}
	idle(t)
	readers := items.LiveReaders.Load()
	before := bridge.OnPanic
	bridge.OnPanic = func(any, []byte) { f.panics.Add(1) }
	t.Cleanup(func() {
		within.Eventually(t, "the end of all readers", func() bool { return items.LiveReaders.Load() == readers })
		idle(t)
		bridge.OnPanic = before
		assert.Zero(t, f.live.Load(), "items that are not released")
		assert.Zero(t, f.panics.Load(), "panics that no caller is told")
	})
	return f
}

// idle waits for the end of all goroutines, those of an earlier test too.
func idle(t testing.TB) {
	t.Helper()
	within.Eventually(t, "the end of the goroutine", func() bool { return items.Goroutines.Load() == 0 })
}

func (f *fixture) item(n int) *number {
	f.live.Add(1)
	item := &number{value: n, fixture: f}
	item.refs.Init("number")
	return item
}

// released is an item without a reference.
func (f *fixture) released() *number {
	item := f.item(0)
	item.Release()
	return item
}

// reader makes a reader of a source.
func (f *fixture) reader(s items.Source[*number]) *reader {
	r := &reader{
		Count: func(n *number) *refcount.Count { return &n.refs },
		Check: fits,
	}
	r.Init("reader of numbers", device.CPU, s)
	return r
}

// unfit is a number whose check panics.
const unfit = -2

// fits refuses released and negative numbers.
func fits(n *number) error {
	switch {
	case !n.refs.Alive():
		return fielderr.Released("number")
	case n.value == unfit:
		panic("compared")
	case n.value < 0:
		return errUnfit
	}
	return nil
}

// source is a source of the numbers from 0 to n-1. It fails the test if it is called twice at the same time,
// after its end, or after Close.
type source struct {
	f    *fixture
	n    int
	end  error          // after the numbers; nil: io.EOF
	on   map[int]func() // called in the call of Next with this number
	stop func()         // called in Close; nil: nothing

	calls, inside, interrupts, closes atomic.Int64
	over                              atomic.Bool
}

func (f *fixture) source(n int) *source { return &source{f: f, n: n, on: map[int]func(){}} }

func (s *source) Next() (*number, error) {
	assert.EqualValues(s.f, 1, s.inside.Add(1), "calls at the same time")
	defer s.inside.Add(-1)
	assert.False(s.f, s.over.Load(), "a call after the end")
	assert.Zero(s.f, s.closes.Load(), "a call after Close")
	call := int(s.calls.Add(1)) - 1
	if on := s.on[call]; on != nil {
		s.over.Store(true) // unless it returns
		on()
		s.over.Store(false)
	}
	switch {
	case call < s.n:
		return s.f.item(call), nil
	case s.end == nil:
		s.end = io.EOF
	}
	s.over.Store(true)
	return nil, s.end
}

func (s *source) Interrupt() { s.interrupts.Add(1) }

func (s *source) Close(then func()) {
	defer then()
	assert.Zero(s.f, s.inside.Load(), "Close during a call")
	assert.EqualValues(s.f, 1, s.closes.Add(1), "calls of Close")
	if s.stop != nil {
		s.stop()
	}
}

// holdBack makes a call of Next wait for answer, and closes called when it is made.
func (s *source) holdBack(call int) (called chan struct{}, answer func()) {
	called, let := make(chan struct{}), make(chan struct{})
	s.on[call] = func() { close(called); <-let }
	answer = sync.OnceFunc(func() { close(let) })
	s.f.Cleanup(answer)
	return called, answer
}

func same(n *number) (*number, error) { return n, nil }

// digit is a function for Map that appends a digit.
func (f *fixture) digit(d int) func(*number) (*number, error) {
	return func(n *number) (*number, error) { return f.item(n.value*10 + d), nil }
}

// layers are the ways to put stages on top of a source.
func (f *fixture) layers() map[string]func(items.Source[*number]) *reader {
	with := func(stages func(*reader)) func(items.Source[*number]) *reader {
		return func(s items.Source[*number]) *reader {
			r := f.reader(s)
			stages(r)
			return r
		}
	}
	return map[string]func(items.Source[*number]) *reader{
		"source":        f.reader,
		"ahead":         with(func(r *reader) { r.Prefetch(1) }),
		"far ahead":     with(func(r *reader) { r.Prefetch(7) }),
		"twice ahead":   with(func(r *reader) { r.Prefetch(2); r.Prefetch(2) }),
		"mapped":        with(func(r *reader) { r.Map(same) }),
		"mapped ahead":  with(func(r *reader) { r.Map(same); r.Prefetch(3) }),
		"ahead, mapped": with(func(r *reader) { r.Prefetch(2); r.Map(same) }),
		"bounded":       func(s items.Source[*number]) *reader { return f.reader(items.NewBounded(background, "read", s)) },
		"bounded ahead": func(s items.Source[*number]) *reader {
			r := f.reader(items.NewBounded(background, "read", s))
			r.Prefetch(2)
			return r
		},
	}
}

// eachLayer runs a test for a source of n numbers with each of the layers on top.
func eachLayer(t *testing.T, n int, test func(f *fixture, s *source, open func() *reader)) {
	t.Helper()
	for name := range new(fixture).layers() {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			s := f.source(n)
			test(f, s, func() *reader { return f.layers()[name](s) })
		})
	}
}

// ways are the ways to read a reader to its end; they return the values and the error.
var ways = map[string]func(r *reader) ([]int, error){
	"All": drain,
	"Next": func(r *reader) (all []int, err error) {
		for r.Next() {
			all = append(all, r.Current.value)
		}
		return all, r.Err()
	},
	"Pull": func(r *reader) (all []int, err error) {
		for {
			item, err := r.Pull()
			if err == io.EOF {
				return all, nil
			}
			if err != nil {
				return all, err
			}
			all = append(all, item.value)
			item.Release()
		}
	},
}

func drain(r *reader) (all []int, err error) {
	for item, err := range r.All {
		if err != nil {
			return all, err
		}
		all = append(all, item.value)
	}
	return all, nil
}

// upTo returns 0, 1, ... n-1.
func upTo(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

// closes closes a reader whose source can end.
func closes(t testing.TB, r *reader) {
	t.Helper()
	within.Seconds(t, "Close", func() error { return r.Close(background) })
}

// isClosed asserts that a reader ends with the error of one that was closed, and waits for nothing.
func isClosed(t testing.TB, r *reader) {
	t.Helper()
	assert.ErrorIs(t, r.Err(), items.ErrClosed, "before it is asked")
	within.Seconds(t, "the end of a closed reader", func() error {
		assert.False(t, r.Next())
		_, err := drain(r)
		assert.EqualError(t, err, "cdevice: read: reader: closed: invalid: already released")
		return nil
	})
}

// nextReturns takes the next item, which must be there.
func nextReturns(t testing.TB, r *reader, want int) {
	t.Helper()
	require.True(t, r.Next(), "%v", r.Err())
	assert.Equal(t, want, r.Current.value)
}
