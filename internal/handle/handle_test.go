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
	for _, w := range []Word{0, 1<<32 | 0xffffffff, 0xffffffff} {
		assert.Nil(t, Take(w))
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
