package items_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A reader gives the items in order and then the end, which stays. When it has reported the end, nothing is
// in use: no goroutine runs, and Release closes the source, if a prefetcher has not.
func TestReaderReadsToTheEnd(t *testing.T) {
	for way, read := range ways {
		for _, end := range []error{nil, errSource} {
			t.Run(fmt.Sprint(way, " ", end), func(t *testing.T) {
				eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
					s.end = end
					readers := items.LiveReaders.Load()
					r := open()
					assert.Zero(t, s.calls.Load(), "nothing is asked for yet")
					got, err := read(r)
					assert.Equal(t, upTo(9), got)
					assert.Equal(t, end, err)
					for range 2 {
						got, err = read(r)
						assert.Empty(t, got)
						assert.Equal(t, end, err)
						assert.Equal(t, end, r.Err())
					}
					assert.EqualValues(t, 10, s.calls.Load())
					assert.Zero(t, items.Goroutines.Load())
					closes(t, r)
					assert.Equal(t, end, r.Err(), "a stream that had ended keeps its end")
					assert.True(t, r.Release())
					assert.EqualValues(t, 1, s.closes.Load())
					assert.Equal(t, readers, items.LiveReaders.Load())
				})
			})
		}
	}
}

// The source of a prefetcher is closed before the end is delivered.
func TestEndComesAfterTheSourceIsClosed(t *testing.T) {
	f := begin(t)
	for range 100 {
		s := f.source(2)
		s.stop = runtime.Gosched
		r := f.reader(s)
		r.Prefetch(1)
		for r.Next() {
		}
		assert.EqualValues(t, 1, s.closes.Load())
		r.Release()
	}
}

func TestItemsAreBorrowed(t *testing.T) {
	f := begin(t)
	r := f.reader(f.source(5))
	var first *number
	for item, err := range r.All {
		require.NoError(t, err)
		if first == nil {
			first = item
			assert.PanicsWithError(t, "cdevice: number: Release without a Retain: it is borrowed from its reader, which releases it: invalid", item.Release)
			continue
		}
		assert.False(t, first.refs.Alive(), "the loop has moved on")
		item.Retain()
		first = item
		break
	}
	assert.Equal(t, 1, first.value, "retained")
	first.Release()
	nextReturns(t, r, 2)
	third := r.Current
	nextReturns(t, r, 3)
	assert.False(t, third.refs.Alive(), "Next has moved on")
	assert.EqualValues(t, 1, f.live.Load())
	r.Release()
	assert.Zero(t, f.live.Load(), "the last Release drops the current item")
	assert.Nil(t, r.Current)
}

func TestReaderIsReleasedByItsLastReference(t *testing.T) {
	eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
		r := open()
		require.True(t, r.Hold())
		nextReturns(t, r, 0)
		assert.False(t, r.Release())
		assert.Zero(t, s.closes.Load(), "there is a reference left")
		nextReturns(t, r, 1)
		assert.True(t, r.Release())
		within.Eventually(t, "the end of the source", func() bool { return s.closes.Load() == 1 })
		calls := s.calls.Load()
		assert.False(t, r.Hold())
		for _, read := range ways {
			_, err := read(r)
			assert.ErrorIs(t, err, fielderr.ErrReleased, "it does not look like the end")
		}
		assert.Equal(t, calls, s.calls.Load(), "nothing is asked after it")
	})
}

// Many goroutines call a reader that was released: its source is not asked, and not closed again.
func TestReleasedReaderStaysReleased(t *testing.T) {
	f := begin(t)
	for range 100 {
		s := f.source(1)
		r := f.reader(s)
		r.Release()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 10 {
					_, err := drain(r)
					assert.ErrorIs(t, err, fielderr.ErrReleased)
				}
			})
		}
		all.Wait()
		assert.Zero(t, s.calls.Load())
	}
}

// The last Release during a call has no effect on Pull, which has its answer first, and drops the item of
// Next, which has no place for it. Once it has returned, the source is closed.
func TestReleaseDuringACall(t *testing.T) {
	f := begin(t)
	s := f.source(1)
	r := f.reader(s)
	s.on[0] = func() { r.Release() }
	got, err := drain(r)
	assert.Equal(t, upTo(1), got)
	assert.ErrorIs(t, err, fielderr.ErrReleased, "after the item")
	assert.EqualValues(t, 1, s.closes.Load())

	s = f.source(1)
	r = f.reader(s)
	s.on[0] = func() { r.Release() }
	assert.False(t, r.Next())
	assert.Nil(t, r.Current)
	assert.ErrorIs(t, r.Err(), fielderr.ErrReleased)
	assert.EqualValues(t, 1, s.closes.Load())
}

// Many goroutines read: the source is called by one at a time, and each item is given once.
func TestCallsAreSerialised(t *testing.T) {
	eachLayer(t, 400, func(f *fixture, _ *source, open func() *reader) {
		r := open()
		defer r.Release()
		var seen [400]atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for item, err := range r.All {
					if assert.NoError(t, err) {
						seen[item.value].Add(1)
					}
				}
			})
		}
		all.Wait()
		for i := range seen {
			assert.EqualValues(t, 1, seen[i].Load())
		}
	})
}

// However many goroutines read, a release ends the stream. Calls that wait for one under way do not ask.
func TestReleaseEndsAStreamThatManyRead(t *testing.T) {
	f := begin(t)
	s := f.source(1 << 40)
	called, answer := s.holdBack(100)
	r := f.reader(s)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, err := drain(r)
			assert.ErrorIs(t, err, fielderr.ErrReleased)
		})
	}
	<-called
	for range 1000 { // until the others wait for that call
		runtime.Gosched()
	}
	r.Release()
	answer()
	all.Wait() // without an end, they would read for ever
	assert.EqualValues(t, 101, s.calls.Load())
}

// The last Release does not wait for a call under way, and ends the source's wait.
func TestReleaseDoesNotWait(t *testing.T) {
	eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
		called, answer := s.holdBack(1)
		r := open()
		nextReturns(t, r, 0)
		var next sync.WaitGroup
		next.Go(func() { assert.False(t, r.Next()) })
		<-called
		r.Release()
		assert.Zero(t, s.closes.Load(), "not during a call")
		within.Eventually(t, "the interrupt", func() bool { return s.interrupts.Load() > 0 })
		answer()
		next.Wait()
		within.Eventually(t, "the end of the source", func() bool { return s.closes.Load() == 1 })
		assert.EqualValues(t, 2, s.calls.Load(), "nothing is asked after it")
	})
}

// The source may query the state of its stream.
func TestErrInsideTheSource(t *testing.T) {
	f := begin(t)
	s := f.source(0)
	s.end = errSource
	r := f.reader(s)
	defer r.Release()
	s.on[0] = func() { assert.NoError(t, r.Err()) }
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), errSource)
}

// A panic in a source, and the end of the goroutine that calls it, are errors of the stream. The source is not
// asked again.
func TestPanicsOfASource(t *testing.T) {
	long := fmt.Errorf("%s: %w", strings.Repeat("ä", 1<<20), errSource)
	shortened := fmt.Sprintf("%s... (%d bytes)", long.Error()[:64<<10], len(long.Error()))
	for _, row := range []struct {
		name, want string
		do         func()
		is         error
	}{
		{"a value", "cdevice: panic: in the source", func() { panic("in the source") }, nil},
		{"an error", "cdevice: panic: the source is on fire", func() { panic(errSource) }, errSource},
		{"a long error", "cdevice: panic: " + shortened, func() { panic(long) }, errSource},
		{"a value whose text panics", "cdevice: panic: a items_test.textPanics, whose text panics", func() { panic(textPanics{}) }, nil},
		{"the end of its goroutine", "cdevice: the code that makes the items of the stream ended its goroutine", runtime.Goexit, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
				s.on[2] = row.do
				r := open()
				ended := make(chan struct{})
				go func() { // which the source may end
					defer close(ended)
					_, _ = drain(r)
				}()
				<-ended
				for _, read := range ways {
					_, err := read(r)
					assert.EqualError(t, err, row.want)
					assert.True(t, row.is == nil || errors.Is(err, row.is))
				}
				assert.EqualValues(t, 3, s.calls.Load())
				closes(t, r)
				r.Release()
			})
		})
	}
}

// nilError is an error that a program returns by mistake: a nil pointer, which is no nil error.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// isPanics is an error whose Is panics; its text does not.
type isPanics struct{}

func (isPanics) Error() string { return "no table" }
func (isPanics) Is(error) bool { panic("which error?") }

// asPanics is an error whose As panics, or finds everything.
type asPanics struct{ finds bool }

func (asPanics) Error() string { return "no table" }
func (e asPanics) As(any) bool {
	if !e.finds {
		panic("as what?")
	}
	return true
}

// textPanics is a value whose text panics with another one.
type textPanics struct{}

func (textPanics) String() string { panic(textPanics{}) }

// strangeError is an error whose text panics with such a value.
type strangeError struct{}

func (strangeError) Error() string { panic(textPanics{}) }

// An error that wraps io.EOF is of a source that was cut off, and no end of the stream: programs take every
// error that wraps io.EOF for the end. An error whose methods panic is that panic.
func TestErrorsAsReported(t *testing.T) {
	cut := fmt.Errorf("item 7: %w", errors.Join(io.EOF, syscall.ENOSPC))
	panicIn := "cdevice: panic in an error of type "
	for _, row := range []struct {
		err  error
		want string
		is   []error
	}{
		{cut, cut.Error(), []error{io.ErrUnexpectedEOF, syscall.ENOSPC}},
		{(*nilError)(nil), panicIn + "*items_test.nilError: runtime error: invalid memory address or nil pointer dereference", nil},
		{isPanics{}, panicIn + "items_test.isPanics: which error?", nil},
		{asPanics{}, panicIn + "items_test.asPanics: as what?", nil},
		{asPanics{true}, panicIn + "items_test.asPanics: As finds an error of a type that no error has", nil},
		{fmt.Errorf("deep: %w", asPanics{}), panicIn + "*fmt.wrapError: as what?", nil},
		{strangeError{}, panicIn + "items_test.strangeError: a items_test.textPanics, whose text panics", nil},
	} {
		t.Run(fmt.Sprintf("%T", row.err), func(t *testing.T) {
			eachLayer(t, 0, func(f *fixture, s *source, open func() *reader) {
				s.end = row.err
				r := open()
				defer r.Release()
				for _, read := range ways {
					_, err := read(r)
					assert.EqualError(t, err, row.want)
					assert.NotErrorIs(t, err, io.EOF)
					for _, is := range row.is {
						assert.ErrorIs(t, err, is)
					}
				}
			})
		})
	}
	var errno syscall.Errno
	f := begin(t)
	s := f.source(0)
	s.end = cut
	r := f.reader(s)
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorAs(t, r.Err(), &errno)
}

// A stream that fails before its first item does so even with io.EOF, which is no end then.
func TestFailedReader(t *testing.T) {
	f := begin(t)
	for _, row := range []struct{ err, is error }{{errSource, errSource}, {io.EOF, io.ErrUnexpectedEOF}} {
		s := f.source(1)
		r := f.reader(s)
		r.Fail(row.err)
		for _, read := range ways {
			got, err := read(r)
			assert.Empty(t, got)
			assert.EqualError(t, err, row.err.Error())
			assert.ErrorIs(t, err, row.is)
			assert.NotErrorIs(t, err, io.EOF)
		}
		assert.Zero(t, s.calls.Load())
		r.Release()
	}
}
