package handle

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

type counter struct{ released int }

func (c *counter) Release() { c.released++ }

func TestTakeReturnsTheValueOnce(t *testing.T) {
	before := Live()
	v := &counter{}
	w := New(v)
	assert.NotZero(t, w)
	assert.Equal(t, before+1, Live())
	assert.Same(t, v, Take(w))
	assert.Nil(t, Take(w), "a word is spent after Take")
	assert.Equal(t, before, Live())
}

func TestStaleWordDoesNotNameTheNextValue(t *testing.T) {
	w := New(&counter{})
	Take(w)
	next := New(&counter{})
	defer Take(next)
	assert.Equal(t, uint32(w), uint32(next), "the slot is reused")
	assert.NotEqual(t, w, next, "under another generation")
	assert.Nil(t, Take(w))
}

func TestUnknownWordsNameNothing(t *testing.T) {
	for _, w := range []Word{0, 1<<32 | 0xffffffff, 0xffffffff, mark, mark | 0xffffffff} {
		assert.Nil(t, Take(w))
	}
	w := New(&counter{})
	defer Take(w)
	assert.Nil(t, Take(w^mark), "the mark is part of it")
}

// However often a slot was used: no word is an address, of the program's half or the
// kernel's.
func TestNoWordLooksLikeAnAddress(t *testing.T) {
	first := New(&counter{})
	Take(first)
	slot := &table.slots[uint32(first)-1]
	before := slot.gen
	defer func() { slot.gen = before }()
	for _, gen := range []uint32{0, 0xc0, 0x7fff, generations - 1} {
		slot.gen = gen
		w := New(&counter{})
		assert.Equal(t, uint32(first), uint32(w), "the slot is used again")
		assert.NotZero(t, w>>56, "%#x", w)
		assert.Less(t, w>>56, Word(0xff), "%#x", w)
		assert.NotNil(t, Take(w))
	}
}

func TestConcurrentUse(t *testing.T) {
	before := Live()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				v := &counter{}
				w := New(v)
				if got := Take(w); got != v {
					t.Errorf("Take = %v, want the value that New was given", got)
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, before, Live())
}

func TestNewAndTakeDoNotAllocate(t *testing.T) {
	v := &counter{}
	New(v) // grows the table
	assert.Zero(t, testing.AllocsPerRun(100, func() { Take(New(v)) }))
}
