package cdevice_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

func TestStagesAreAppliedInTheirOrder(t *testing.T) {
	for name, compose := range map[string]func(*cdevice.RecordReader) *cdevice.RecordReader{
		"Map": func(r *cdevice.RecordReader) *cdevice.RecordReader { return r.Map(digit(t, 1)).Map(digit(t, 2)) },
		"Map, Prefetch": func(r *cdevice.RecordReader) *cdevice.RecordReader {
			return r.Map(digit(t, 1)).Map(digit(t, 2)).Prefetch(2)
		},
		"Prefetch, Map": func(r *cdevice.RecordReader) *cdevice.RecordReader {
			return r.Prefetch(2).Map(digit(t, 1)).Map(digit(t, 2))
		},
		"between": func(r *cdevice.RecordReader) *cdevice.RecordReader {
			return r.Map(same).Map(digit(t, 1)).Prefetch(1).Map(digit(t, 2)).Prefetch(3).Map(same)
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := newScript(t, numbered(t, 20)...)
			r, err := cdevice.ImportRecordReader(s.stream)
			require.NoError(t, err)
			assert.Same(t, r, compose(r), "it is the reader itself")
			assert.Zero(t, s.nexts.Load(), "nothing is asked for yet")
			got, err := numbersOf(t, r.All())
			require.NoError(t, err)
			want := upTo(20)
			for i := range want {
				want[i] = want[i]*100 + 12
			}
			assert.Equal(t, want, got)
			r.Release()
			assert.EqualValues(t, 1, s.releases.Load(), "the end was given before")
		})
	}
}

// Stages are for the batches that are left.
func TestStagesInTheMiddle(t *testing.T) {
	checkLeaks(t)
	s := newScript(t, numbered(t, 20)...)
	r := s.reader(t)
	require.True(t, r.Next())
	first := r.RecordBatch()
	r.Prefetch(3)
	assert.Same(t, first, r.RecordBatch(), "it is not touched")
	require.True(t, r.Next())
	assert.Equal(t, 1, numberOf(t, r.RecordBatch()))
	within.Eventually(t, "the batches ahead", func() bool { return s.nexts.Load() == 5 })
	r.Map(digit(t, 7))
	for i := 2; i < 10; i++ {
		require.True(t, r.Next())
		assert.Equal(t, i*10+7, numberOf(t, r.RecordBatch()), "those that were ready too")
	}
	r.Prefetch(1).Map(digit(t, 8))
	got, err := numbersOf(t, r.All())
	require.NoError(t, err)
	require.Len(t, got, 10)
	assert.Equal(t, []int{1078, 1978}, []int{got[0], got[9]})
	assert.EqualValues(t, 1, s.releases.Load())
}

// Neither Map nor Prefetch waits for a producer that does not return.
func TestStagesDoNotWaitForACallUnderWay(t *testing.T) {
	for name, layer := range layers(t) {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			b := blocked(t, layer)
			require.True(t, b.r.Next())
			got := make(chan bool)
			go func() { got <- b.r.Next() }()
			<-b.called
			b.r.Map(digit(t, 1)).Prefetch(2).Map(digit(t, 2)) // returns
			b.answer()
			require.True(t, <-got)
			var numbers []int
			for b.r.Next() {
				numbers = append(numbers, numberOf(t, b.r.RecordBatch()))
			}
			require.NoError(t, b.r.Err())
			require.NotEmpty(t, numbers)
			assert.Equal(t, 812, numbers[len(numbers)-1])
			assert.EqualValues(t, 1, b.releases.Load())
			b.r.Release()
		})
	}
}

func TestStagesOfAReaderThatEnded(t *testing.T) {
	checkLeaks(t)
	never := func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		t.Error("called")
		return nil, errSource
	}
	for name, row := range map[string]struct {
		end  func(r *cdevice.RecordReader)
		want error
	}{
		"at its end": {func(r *cdevice.RecordReader) {
			for r.Next() {
			}
		}, nil},
		"with an error": {func(r *cdevice.RecordReader) {
			r.Map(func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return nil, errSource }).Next()
		}, errSource},
		"closed":   {func(r *cdevice.RecordReader) { closes(t, r) }, cdevice.ErrReleased},
		"released": {func(r *cdevice.RecordReader) { r.Release() }, cdevice.ErrReleased},
	} {
		s := newScript(t, numbered(t, 2)...)
		r, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		row.end(r)
		asked := s.nexts.Load()
		assert.False(t, r.Map(never).Prefetch(2).Map(nil).Next(), name)
		assert.ErrorIs(t, r.Err(), row.want, name)
		assert.Equal(t, asked, s.nexts.Load(), name)
		if name != "released" {
			r.Release()
		}
	}
}

func TestStagesThatAreNone(t *testing.T) {
	settles(t)
	s := newScript(t, numbered(t, 3)...)
	r := s.reader(t).Prefetch(0).Prefetch(-1)
	require.True(t, r.Next())
	for range 100 {
		runtime.Gosched()
	}
	assert.EqualValues(t, 1, s.nexts.Load(), "nothing is asked ahead")
	r.Prefetch(1)
	require.True(t, r.Next())
	within.Eventually(t, "the one ahead", func() bool { return s.nexts.Load() == 3 })
	r.Map(nil)
	assert.EqualError(t, r.Err(), "cdevice: read: f = nil, want a function: invalid")
	assert.False(t, r.Next())
	closes(t, r)
	assert.EqualValues(t, 1, s.releases.Load())
}

// Many goroutines compose, ask, close and release one reader.
func TestStagesFromManyGoroutines(t *testing.T) {
	settles(t)
	batches := numbered(t, 30)
	for i := range 300 {
		s := newScript(t, batches...)
		r, err := cdevice.ImportRecordReader(s.stream)
		require.NoError(t, err)
		var all sync.WaitGroup
		for k := range 6 {
			r.Retain()
			all.Add(1)
			go func() {
				defer all.Done()
				defer r.Release()
				switch k {
				case 0, 1:
					for b, err := range r.All() {
						if err != nil {
							assert.ErrorIs(t, err, cdevice.ErrReleased)
							return
						}
						if numberOf(t, b) == i%40 {
							return
						}
					}
				case 2:
					r.Prefetch(1 + i%3)
				case 3:
					r.Map(same).Prefetch(i % 2)
				case 4:
					r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b.Slice(0, 1) })
				case 5:
					if i%2 == 0 {
						assert.NoError(t, r.Close(background))
					}
				}
			}()
		}
		r.Release()
		all.Wait()
		within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
	}
}

func TestStagesOfAnArrayReader(t *testing.T) {
	settles(t)
	numbers := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	a, err := cdevice.WrapArray(numbers, device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	open := func() *cdevice.ArrayReader {
		r, err := cdevice.NewArrayReader(a.Field(), device.CPU, func(yield func(*cdevice.Array, error) bool) {
			for range 4 {
				if !yield(a, nil) {
					return
				}
			}
		})
		require.NoError(t, err)
		return r
	}
	r := open()
	assert.Same(t, r, r.Map(func(a *cdevice.Array) (*cdevice.Array, error) { return a.Slice(1, 3) }).Prefetch(2))
	items := 0
	for got, err := range r.All() {
		require.NoError(t, err)
		assert.EqualValues(t, 2, got.Len())
		items++
	}
	assert.Equal(t, 4, items)
	r.Release()

	words, err := cdevice.WrapArray(fromJSON(t, arrow.BinaryTypes.String, `["a"]`), device.CPUDevice())
	require.NoError(t, err)
	defer words.Release()
	r = open()
	assert.False(t, r.Map(func(*cdevice.Array) (*cdevice.Array, error) {
		words.Retain()
		return words, nil
	}).Next())
	assert.EqualError(t, r.Err(), "cdevice: read: Array.type = utf8, want the stream's: int64: invalid")
	r.Release()

	r = open()
	r.Map(nil)
	assert.EqualError(t, r.Err(), "cdevice: read: f = nil, want a function: invalid")
	r.Release()
}

// The end of the context of copies is final, for those that were made ahead too.
func TestPrefetchedCopiesEndWithTheirContext(t *testing.T) {
	settles(t)
	src := asked(t, nil, numbered(t, 9)...)
	ctx, cancel := context.WithCancel(background)
	r, err := src.CopyTo(ctx, device.CPUDevice())
	require.NoError(t, err)
	src.Release()
	calls := 0
	r.Prefetch(3).Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		if calls++; calls == 3 {
			cancel()
		}
		return b, nil
	})
	for range 2 {
		require.True(t, r.Next())
	}
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), context.Canceled)
	closes(t, r)
	r.Release()
}

// Close waits for a function that is under way, and for the source below it.
func TestCloseWaitsForAFunctionOfMap(t *testing.T) {
	for name, ahead := range map[string]func(*cdevice.RecordReader, batchFunc) *cdevice.RecordReader{
		"Map": (*cdevice.RecordReader).Map,
		"below a Prefetch": func(r *cdevice.RecordReader, f batchFunc) *cdevice.RecordReader {
			return r.Map(f).Prefetch(2)
		},
		"above a Prefetch": func(r *cdevice.RecordReader, f batchFunc) *cdevice.RecordReader {
			return r.Prefetch(2).Map(f)
		},
		"below a copy": func(r *cdevice.RecordReader, f batchFunc) *cdevice.RecordReader {
			defer r.Map(f).Release()
			c, err := r.CopyTo(background, device.CPUDevice())
			require.NoError(t, err)
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			settles(t)
			s := newScript(t, numbered(t, 9)...)
			inside, let := make(chan struct{}), make(chan struct{})
			src, err := cdevice.ImportRecordReader(s.stream)
			require.NoError(t, err)
			calls := 0
			r := ahead(src, func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
				if calls++; calls == 2 {
					close(inside)
					<-let
				}
				return digit(t, 3)(b)
			})
			require.True(t, r.Next())
			asked := make(chan bool)
			go func() { asked <- r.Next() }()
			<-inside
			expires(t, r.Close)
			if name != "above a Prefetch" { // which gives the source back at once
				assert.Zero(t, s.releases.Load(), "the function is called where it is asked")
			}
			closed := make(chan error)
			go func() { closed <- r.Close(background) }()
			close(let)
			require.NoError(t, <-closed)
			assert.EqualValues(t, 1, s.releases.Load())
			assert.False(t, <-asked)
			assert.Equal(t, 2, calls, "no further batch is asked for")
			isClosed(t, r)
			r.Release()
		})
	}
}

// A release does not wait for a function, and a later result of it is dropped.
func TestReleaseDoesNotWaitForAFunctionOfMap(t *testing.T) {
	settles(t)
	s := newScript(t, numbered(t, 9)...)
	inside, let := make(chan struct{}), make(chan struct{})
	r, err := cdevice.ImportRecordReader(s.stream)
	require.NoError(t, err)
	calls := 0
	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		if calls++; calls == 2 {
			close(inside)
			<-let
		}
		return digit(t, 3)(b)
	}).Prefetch(1)
	require.True(t, r.Next())
	<-inside
	r.Release()
	assert.Zero(t, s.releases.Load())
	close(let)
	within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
}
