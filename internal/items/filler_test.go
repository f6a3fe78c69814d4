package items_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// filler is a source that fills every second struct.
type filler struct {
	*source
	filled, back []uintptr
	during       func()
}

func (s *filler) Fill(out uintptr) (*number, bool, error) {
	item, err := s.source.Next()
	if err != nil || item.value%2 == 0 {
		return item, false, err
	}
	item.Release()
	if s.during != nil {
		s.during()
	}
	s.filled = append(s.filled, out)
	return nil, true, nil
}

func (s *filler) TakeBack(out uintptr) { s.back = append(s.back, out) }

// A reader hands on what its source fills, in the order of the items; other callers get items.
func TestFilledStructs(t *testing.T) {
	f := begin(t)
	s := &filler{source: f.source(6)}
	r := f.reader(s)
	for i := range 4 {
		item, filled, err := r.PullTo(uintptr(100 + i))
		assert.NoError(t, err)
		assert.Equal(t, i%2 == 1, filled)
		assert.Equal(t, filled, item == nil)
		if item != nil {
			assert.Equal(t, i, item.value)
			item.Release()
		}
	}
	nextReturns(t, r, 4)
	r.Map(same) // a stage needs an item
	item, filled, err := r.PullTo(105)
	assert.True(t, err == nil && !filled && item.value == 5)
	item.Release()
	_, filled, err = r.PullTo(106)
	assert.True(t, !filled && err == io.EOF)
	assert.Equal(t, []uintptr{101, 103}, s.filled)
	assert.Empty(t, s.back)
	r.Release()
}

// What is filled when the reader is closed is taken back.
func TestFilledStructOfAClosedReader(t *testing.T) {
	f := begin(t)
	s := &filler{source: f.source(6)}
	r := f.reader(s)
	item, _, err := r.PullTo(100)
	assert.NoError(t, err)
	item.Release()
	s.during = r.Interrupt
	item, filled, err := r.PullTo(101)
	assert.ErrorIs(t, err, fielderr.ErrReleased)
	assert.True(t, item == nil && !filled)
	assert.Equal(t, []uintptr{101}, s.back)
	closes(t, r)
	r.Release()
}
