package items_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// iterator is a source of the numbers that a function yields.
func iterator(seq func(yield func(*number, error) bool)) *items.Sequence[*number] {
	return &items.Sequence[*number]{Seq: seq, Check: fits}
}

// A function's items are checked. One that does not fit, or comes with an error or a panic of the check, is
// released.
func TestFunction(t *testing.T) {
	one := func(f *fixture) *number { return f.item(1) }
	for name, row := range map[string]struct {
		item  func(f *fixture) *number
		err   error // beside the item
		check func(*number) error
		want  string
	}{
		"an item beside an error": {one, errSource, nil, "the source is on fire"},
		"an item beside io.EOF":   {one, io.EOF, nil, "cdevice: read: the source returned an item with io.EOF: invalid"},
		"an item that is refused": {one, nil, func(*number) error { return errUnfit }, "the item does not fit"},
		"a panic of the check":    {one, nil, func(*number) error { panic("compared") }, "cdevice: panic: compared"},
		"a released item":         {(*fixture).released, nil, fits, "cdevice: read: number: invalid: already released"},
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			r := f.reader(&items.Function[*number]{Ask: func() (*number, error) { return row.item(f), row.err }, Check: row.check})
			assert.False(t, r.Next())
			assert.EqualError(t, r.Err(), row.want)
			assert.Zero(t, f.live.Load())
			r.Release()
		})
	}
	t.Run("stop is called once, then done", func(t *testing.T) {
		f := begin(t)
		var end func()
		stops := 0
		for _, s := range []*items.Function[*number]{
			{Stop: func() { stops++ }},
			{StopThen: func(done func()) { stops++; end = done }},
		} {
			r := f.reader(s)
			r.Release()
			assert.Equal(t, end != nil, r.Close(done) != nil, "it is in use until done is called")
		}
		assert.Equal(t, 2, stops)
		end()
	})
}

// Unused is called once, in place of an iterator that nothing has read, and the reader is closed after it.
func TestSequenceThatIsNotRead(t *testing.T) {
	f := begin(t)
	for _, read := range []bool{false, true} {
		unused := 0
		s := iterator(func(yield func(*number, error) bool) {})
		s.Unused = func() { unused++ }
		r := f.reader(s)
		if read {
			assert.False(t, r.Next())
		}
		closes(t, r)
		r.Release()
		assert.Equal(t, !read, unused == 1)
	}
}

// An iterator runs only while it is asked, and not after its first error. Its items are borrowed.
func TestSequence(t *testing.T) {
	f := begin(t)
	item := f.item(3)
	defer item.Release()
	running := 0
	r := f.reader(iterator(func(yield func(*number, error) bool) {
		running++
		for yield(item, nil) {
			running++
		}
	}))
	for want := range 3 {
		assert.Equal(t, want, running)
		nextReturns(t, r, 3)
	}
	r.Release()
	assert.Equal(t, 3, running, "it has returned")

	r = f.reader(iterator(func(func(*number, error) bool) { t.Error("the iterator was started") }))
	r.Release()
}

func TestEndsOfASequence(t *testing.T) {
	for name, row := range map[string]struct {
		seq    func(f *fixture, yield func(*number, error) bool)
		want   string // "" is the end
		panics int64  // after the end of the stream
	}{
		"returns":       {func(*fixture, func(*number, error) bool) {}, "", 0},
		"yields io.EOF": {func(_ *fixture, yield func(*number, error) bool) { yield(nil, io.EOF) }, "", 0},
		"yields an item with io.EOF": {func(f *fixture, yield func(*number, error) bool) {
			item := f.item(1)
			defer item.Release()
			yield(item, io.EOF)
		}, "cdevice: read: the source returned an item with io.EOF: invalid", 0},
		"panics": {func(*fixture, func(*number, error) bool) { panic("in the iterator") }, "cdevice: panic: in the iterator", 0},
		"ends its goroutine": {
			func(*fixture, func(*number, error) bool) { runtime.Goexit() },
			"cdevice: the code that makes the items of the stream ended its goroutine", 0,
		},
		"goes on after an error": {func(_ *fixture, yield func(*number, error) bool) {
			yield(nil, errSource)
			yield(nil, errors.New("another"))
		}, "the source is on fire", 0},
		"panics after an error": {func(_ *fixture, yield func(*number, error) bool) {
			yield(nil, errSource)
			panic("while it cleans up")
		}, "the source is on fire", 0},
		"yields what does not fit": {func(f *fixture, yield func(*number, error) bool) {
			item := f.item(-1)
			defer item.Release()
			yield(item, nil)
		}, "the item does not fit", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			r := f.reader(iterator(func(yield func(*number, error) bool) { row.seq(f, yield) }))
			_, err := drain(r)
			if row.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, row.want)
			}
			r.Release()
		})
	}
	t.Run("panics after it was stopped", func(t *testing.T) {
		f := begin(t)
		item := f.item(1)
		defer item.Release()
		r := f.reader(iterator(func(yield func(*number, error) bool) {
			yield(item, nil)
			panic("while it cleans up")
		}))
		nextReturns(t, r, 1)
		r.Release()
		assert.EqualValues(t, 1, f.panics.Swap(0))
	})
}

// Once the context is done, no item is given, ready or not, and stages go below: their items are not given
// either. The end of the stream is kept.
func TestBounded(t *testing.T) {
	for name, stages := range map[string]func(*reader){
		"source": func(*reader) {},
		"ahead":  func(r *reader) { r.Prefetch(3) },
		"mapped": func(r *reader) { r.Map(same); r.Prefetch(1); r.Map(same) },
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			s := f.source(9)
			r := f.reader(items.NewBounded(ctx, "read", s))
			nextReturns(t, r, 0)
			stages(r)
			nextReturns(t, r, 1)
			cancel()
			for _, read := range ways {
				got, err := read(r)
				assert.Empty(t, got)
				assert.EqualError(t, err, "cdevice: read: context canceled")
				assert.ErrorIs(t, err, context.Canceled)
			}
			within.Eventually(t, "the interrupt", func() bool { return s.interrupts.Load() > 0 })
			closes(t, r)
			r.Release()
		})
	}
	t.Run("the context ends during a call", func(t *testing.T) {
		f := begin(t)
		ctx, cancel := context.WithCancel(background)
		s := f.source(2)
		s.on[1] = cancel
		r := f.reader(items.NewBounded(ctx, "read", s))
		nextReturns(t, r, 0)
		assert.False(t, r.Next(), "the item is dropped")
		assert.ErrorIs(t, r.Err(), context.Canceled)
		r.Release()
	})
	t.Run("the source does not answer", func(t *testing.T) {
		f := begin(t)
		ctx, cancel := context.WithCancel(background)
		s := f.source(2)
		called, _ := s.holdBack(1)
		r := f.reader(items.NewBounded(ctx, "read", s))
		r.Prefetch(1)
		nextReturns(t, r, 0)
		<-called
		cancel()
		within.Seconds(t, "Next", func() error { assert.False(t, r.Next()); return nil })
		assert.ErrorIs(t, r.Err(), context.Canceled)
		r.Release()
	})
	t.Run("the context ends after the end", func(t *testing.T) {
		f := begin(t)
		ctx, cancel := context.WithCancel(background)
		s := f.source(0)
		s.on[0] = cancel
		r := f.reader(items.NewBounded(ctx, "read", s))
		got, err := drain(r)
		assert.Empty(t, got)
		assert.NoError(t, err)
		r.Release()
	})
}
