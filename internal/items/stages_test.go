package items_test

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Stages that Map and Prefetch put on top of a source.

func TestStagesAreAppliedInTheirOrder(t *testing.T) {
	for name, compose := range map[string]func(f *fixture, r *reader){
		"Map":           func(f *fixture, r *reader) { r.Map(f.digit(1)); r.Map(f.digit(2)) },
		"Map, Prefetch": func(f *fixture, r *reader) { r.Map(f.digit(1)); r.Map(f.digit(2)); r.Prefetch(2) },
		"Prefetch, Map": func(f *fixture, r *reader) { r.Prefetch(2); r.Map(f.digit(1)); r.Map(f.digit(2)) },
		"between":       func(f *fixture, r *reader) { r.Map(f.digit(1)); r.Prefetch(1); r.Map(f.digit(2)); r.Prefetch(3) },
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			r := f.reader(f.source(3))
			compose(f, r)
			got, err := drain(r)
			assert.NoError(t, err)
			assert.Equal(t, []int{12, 112, 212}, got)
			r.Release()
		})
	}
}

// Stages are for the items that are left, those that were read ahead too.
func TestStagesInTheMiddle(t *testing.T) {
	f := begin(t)
	s := f.source(20)
	r := f.reader(s)
	nextReturns(t, r, 0)
	r.Prefetch(3)
	assert.Equal(t, 0, r.Current.value, "it is not touched")
	nextReturns(t, r, 1)
	within.Eventually(t, "the items ahead", func() bool { return s.calls.Load() == 5 })
	r.Map(f.digit(7))
	for i := 2; i < 10; i++ {
		nextReturns(t, r, i*10+7)
	}
	r.Prefetch(1)
	r.Map(f.digit(8))
	got, err := drain(r)
	assert.NoError(t, err)
	assert.Len(t, got, 10)
	assert.Equal(t, []int{1078, 1978}, []int{got[0], got[9]})
	r.Release()
}

// Neither Map nor Prefetch waits for a source that does not return.
func TestStagesDoNotWaitForACallUnderWay(t *testing.T) {
	eachLayer(t, 9, func(f *fixture, s *source, open func() *reader) {
		called, answer := s.holdBack(1)
		r := open()
		nextReturns(t, r, 0)
		next := make(chan bool)
		go func() { next <- r.Next() }()
		<-called
		r.Map(f.digit(1)) // returns
		r.Prefetch(2)
		r.Map(f.digit(2))
		answer()
		assert.True(t, <-next)
		got, err := drain(r)
		assert.NoError(t, err)
		assert.Equal(t, 812, got[len(got)-1])
		r.Release()
	})
}

func TestStagesOfAReaderThatEnded(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(r *reader)
		want error
	}{
		"at its end": {func(r *reader) { _, _ = drain(r) }, nil},
		"closed":     {func(r *reader) { closes(t, r) }, fielderr.ErrReleased},
		"released":   {func(r *reader) { r.Release() }, fielderr.ErrReleased},
	} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			s := f.source(2)
			r := f.reader(s)
			row.end(r)
			asked := s.calls.Load()
			r.Map(func(*number) (*number, error) { t.Error("called"); return nil, errSource })
			r.Prefetch(2)
			r.Prefetch(math.MaxInt)
			r.Map(nil)
			assert.False(t, r.Next())
			assert.ErrorIs(t, r.Err(), row.want)
			assert.Equal(t, asked, s.calls.Load())
			if name != "released" {
				r.Release()
			}
		})
	}
}

func TestStagesThatAreInvalid(t *testing.T) {
	f := begin(t)
	for _, n := range []int{items.MaxAhead + 1, 1 << 62, math.MaxInt} {
		r := f.reader(f.source(1))
		r.Prefetch(n)
		assert.False(t, r.Next())
		assert.EqualError(t, r.Err(), fmt.Sprintf("cdevice: read: Prefetch = %d, want at most 1048576: invalid", n))
		r.Release()
	}
	r := f.reader(f.source(1))
	r.Map(nil)
	assert.EqualError(t, r.Err(), "cdevice: read: f = nil, want a function: invalid")
	assert.False(t, r.Next())
	r.Release()
}

// At most depth items are ready beyond the one in use; none is before the first read, or for a depth of 0.
func TestPrefetchDepthIsALimit(t *testing.T) {
	for _, depth := range []int{-1, 0, 1, 2, 7} {
		f := begin(t)
		s := f.source(50)
		r := f.reader(s)
		r.Prefetch(depth)
		assert.Zero(t, s.calls.Load())
		for taken := 1; taken < 5; taken++ {
			nextReturns(t, r, taken-1)
			within.Eventually(t, "the items ahead", func() bool { return int(s.calls.Load()) == taken+max(0, depth) })
		}
		for range 100 { // long enough for one too many
			runtime.Gosched()
		}
		assert.EqualValues(t, 4+max(0, depth), s.calls.Load())
		r.Release()
		within.Eventually(t, "the release of all items", func() bool { return f.live.Load() == 0 })
	}
}

// A prefetcher allocates for the items that there are, not for those that there might be.
func TestPrefetchAllocatesAsNeeded(t *testing.T) {
	f := begin(t)
	r := f.reader(f.source(1))
	r.Prefetch(items.MaxAhead)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := drain(r)
	runtime.ReadMemStats(&after)
	assert.NoError(t, err)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	r.Release()
}

// Items that are ready when a reader ends are dropped, whether the source has more, has ended, or does not
// answer.
func TestReadyItemsAreDropped(t *testing.T) {
	for name, n := range map[string]int{"more": 100, "ended": 4, "no answer": 9} {
		for end, do := range map[string]func(*reader){"Release": func(r *reader) { r.Release() }, "Close": (*reader).Interrupt} {
			t.Run(name+", "+end, func(t *testing.T) {
				f := begin(t)
				s := f.source(n)
				ahead := min(8, n)
				answer := func() {}
				if name == "no answer" {
					_, answer = s.holdBack(4)
					ahead = 4
				}
				r := f.reader(s)
				r.Prefetch(7)
				nextReturns(t, r, 0)
				within.Eventually(t, "the items ahead", func() bool { return int(f.live.Load()) == ahead })
				do(r)
				if end == "Close" {
					_ = r.Close(done)
				}
				within.Eventually(t, "the release of what is ready", func() bool {
					return f.live.Load() == map[string]int64{"Close": 1}[end] // the one that Next took
				})
				answer()
				closes(t, r)
				if end == "Close" {
					r.Release()
				}
			})
		}
	}
}

// A function after Prefetch is called where the item is asked for; before it, ahead too.
func TestMapIsCalledWhereItsItemIsAskedFor(t *testing.T) {
	for name, want := range map[string]int64{"below a Prefetch": 3, "above a Prefetch": 1} {
		t.Run(name, func(t *testing.T) {
			f := begin(t)
			var calls atomic.Int64
			count := func(n *number) (*number, error) { calls.Add(1); return n, nil }
			s := f.source(9)
			r := f.reader(s)
			if want > 1 {
				r.Map(count)
			}
			r.Prefetch(2)
			if want == 1 {
				r.Map(count)
			}
			nextReturns(t, r, 0)
			within.Eventually(t, "the items ahead", func() bool { return s.calls.Load() == 3 && calls.Load() == want })
			for range 100 { // long enough for one too many
				runtime.Gosched()
			}
			assert.Equal(t, want, calls.Load())
			r.Release()
		})
	}
}

// The item that f is given is borrowed: released when f returns, unless f retains or returns it. What f returns
// is the reader's. Fit is applied to the items of the source and to the results.
func TestMapBorrowsAndTakes(t *testing.T) {
	f := begin(t)
	var kept *number
	for name, row := range map[string]struct {
		f    func(*number) (*number, error)
		live int64 // while a result is in use
	}{
		"the same item": {same, 1},
		"another item":  {f.digit(1), 1},
		"a kept item":   {func(n *number) (*number, error) { n.Retain(); kept = n; return f.item(0), nil }, 2},
	} {
		r := f.reader(f.source(3))
		r.Fit = func(n *number) *number { n.fits++; return n }
		r.Map(func(n *number) (*number, error) {
			assert.Equal(t, 1, n.fits, name)
			return row.f(n)
		})
		for range 3 {
			assert.True(t, r.Next(), name)
			assert.Equal(t, row.live, f.live.Load(), name)
			assert.Equal(t, map[bool]int{true: 2, false: 1}[name == "the same item"], r.Current.fits, name)
			if kept != nil {
				kept.Release()
				kept = nil
			}
		}
		r.Release()
	}
}

// A function that does not return an item of the stream ends it; its argument and its result are released.
func TestFunctionThatFailsEndsTheStream(t *testing.T) {
	for name, row := range map[string]struct {
		f    func(f *fixture, n *number) (*number, error)
		want string
		is   error
	}{
		"an error":                     {func(*fixture, *number) (*number, error) { return nil, errSource }, "the source is on fire", errSource},
		"an error beside its argument": {func(_ *fixture, n *number) (*number, error) { return n, errSource }, "the source is on fire", errSource},
		"an error beside another item": {func(f *fixture, _ *number) (*number, error) { return f.item(1), errSource }, "the source is on fire", errSource},
		"io.EOF": {
			func(*fixture, *number) (*number, error) { return nil, io.EOF },
			"cdevice: read: the function of Map returned: EOF", io.ErrUnexpectedEOF,
		},
		"nothing": {
			func(*fixture, *number) (*number, error) { return nil, nil },
			"cdevice: read: the function of Map returned nil without an error: invalid", arrow.ErrInvalid,
		},
		"what does not fit": {func(f *fixture, _ *number) (*number, error) { return f.item(-1), nil }, "the item does not fit", errUnfit},
		"what the check panics on": {
			func(f *fixture, _ *number) (*number, error) { return f.item(unfit), nil }, "cdevice: panic: compared", nil,
		},
		"a panic of an error": {func(*fixture, *number) (*number, error) { panic(errSource) }, "cdevice: panic: the source is on fire", errSource},
		"the end of its goroutine": {
			func(*fixture, *number) (*number, error) { runtime.Goexit(); return nil, nil },
			"cdevice: the code that makes the items of the stream ended its goroutine", nil,
		},
		"a released item": {
			func(f *fixture, _ *number) (*number, error) { return f.released(), nil },
			"cdevice: read: number: invalid: already released", fielderr.ErrReleased,
		},
		"a released item beside an error": {
			func(f *fixture, _ *number) (*number, error) { return f.released(), errSource }, "the source is on fire", errSource,
		},
		"its argument after a Release": {
			func(_ *fixture, n *number) (*number, error) { n.Release(); return n, nil },
			"cdevice: panic: cdevice: number: Release without a Retain: it is borrowed from its reader, which releases it: invalid", arrow.ErrInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachLayer(t, 9, func(f *fixture, _ *source, open func() *reader) {
				var calls atomic.Int64
				r := open()
				r.Map(func(n *number) (*number, error) {
					if calls.Add(1) <= 2 {
						return n, nil
					}
					return row.f(f, n)
				})
				r.Map(same)
				nextReturns(t, r, 0)
				nextReturns(t, r, 1)
				ended := make(chan struct{})
				go func() { // which the function may end
					defer close(ended)
					r.Next()
				}()
				<-ended
				assert.False(t, r.Next())
				assert.EqualError(t, r.Err(), row.want)
				assert.True(t, row.is == nil || assert.ErrorIs(t, r.Err(), row.is))
				assert.EqualValues(t, 3, calls.Load(), "it is not called again")
				closes(t, r)
				assert.Zero(t, f.live.Load())
				r.Release()
			})
		})
	}
}

// A function may compose and release its own reader.
func TestFunctionThatChangesItsReader(t *testing.T) {
	f := begin(t)
	s := f.source(9)
	r := f.reader(s)
	r.Map(func(n *number) (*number, error) {
		switch n.value {
		case 1:
			r.Map(f.digit(5))
		case 6:
			r.Release()
		}
		return n, nil
	})
	got, err := drain(r)
	assert.ErrorIs(t, err, fielderr.ErrReleased)
	assert.Equal(t, []int{0, 1, 25, 35, 45, 55, 65}, got)
	assert.EqualValues(t, 1, s.closes.Load())
}

// Many goroutines compose, read, close and release one reader.
func TestStagesFromManyGoroutines(t *testing.T) {
	f := begin(t)
	for i := range 300 {
		r := f.reader(f.source(30))
		read := func() {
			for item, err := range r.All {
				if err != nil {
					assert.ErrorIs(t, err, fielderr.ErrReleased)
					return
				}
				if item.value == i%40 {
					return
				}
			}
		}
		var all sync.WaitGroup
		for _, do := range []func(){
			read, read,
			func() { r.Prefetch(1 + i%3) },
			func() { r.Map(same); r.Prefetch(i % 2) },
			func() { r.Map(func(n *number) (*number, error) { return f.item(n.value), nil }) },
			func() {
				if i%2 == 0 {
					assert.NoError(t, r.Close(background))
				}
			},
		} {
			r.Hold()
			all.Go(func() { defer r.Release(); do() })
		}
		r.Release()
		all.Wait()
	}
}
