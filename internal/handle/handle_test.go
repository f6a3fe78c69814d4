package handle

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
	"weak"

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

func TestTakenValueIsNotKept(t *testing.T) {
	v := &struct {
		counter
		_ [64]byte
	}{}
	kept := weak.Make(v)
	w := New(v)
	v = nil
	runtime.GC()
	assert.NotNil(t, kept.Value())
	Take(w)
	runtime.GC()
	assert.Nil(t, kept.Value())
}

func TestStaleWordDoesNotNameTheNextValue(t *testing.T) {
	w := newNear(0, &counter{})
	Take(w)
	next := newNear(0, &counter{})
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
	first := newNear(0, &counter{})
	slot := shardOf(first).find(first)
	Take(first)
	before := slot.gen
	defer func() { slot.gen = before }()
	for _, gen := range []uint32{0, 0xc0, 0x7fff, generations - 1} {
		slot.gen = gen
		w := newNear(0, &counter{})
		assert.Equal(t, uint32(first), uint32(w), "the slot is used again")
		assert.NotZero(t, w>>56, "%#x", w)
		assert.Less(t, w>>56, Word(0xff), "%#x", w)
		assert.NotNil(t, Take(w))
	}
}

// Words are taken on other threads than the one that they were issued on, and stale words
// of the same slots go on meanwhile.
func TestWordsMayBeTakenByOtherThreads(t *testing.T) {
	before := Live()
	issued := make(chan Word, 64)
	stale := New(&counter{})
	Take(stale)
	var makers, takers sync.WaitGroup
	var taken atomic.Int64
	for range 4 {
		makers.Go(func() {
			for range 2000 {
				issued <- New(&counter{})
				_ = Live()
			}
		})
		takers.Go(func() {
			for w := range issued {
				assert.NotNil(t, Get(w))
				assert.NotNil(t, Take(w))
				assert.Nil(t, Take(w))
				assert.Nil(t, Take(stale))
				taken.Add(1)
			}
		})
	}
	makers.Wait()
	close(issued)
	takers.Wait()
	assert.EqualValues(t, 4*2000, taken.Load())
	assert.Equal(t, before, Live())
}

// A thread that is in the table delays no other.
func TestNewDoesNotWaitForAShardInUse(t *testing.T) {
	const number = 3
	v := &counter{}
	w := newNear(number, v)
	s := shardOf(w)
	assert.Same(t, &table[number], s)
	assert.Same(t, v, Take(w))
	s.Lock()
	w = newNear(number, v)
	assert.Same(t, v, Take(w))
	s.Unlock()
	assert.NotSame(t, s, shardOf(w))
}

// The index of a word would not hold the slots of a shard that grew further.
func TestNewGoesOnWhereAShardIsFull(t *testing.T) {
	defer func(n int) { maxSlots = n }(maxSlots)
	const number = shards - 1
	v := &counter{}
	s := &table[number]
	var words []Word
	maxSlots = 0 // a slot more than the longest shard has, however many the tests before this one used
	for i := range table {
		maxSlots = max(maxSlots, len(table[i].slots)+1)
	}
	for range maxSlots + 3 {
		words = append(words, newNear(number, v))
	}
	assert.Len(t, s.slots, maxSlots)
	assert.Zero(t, s.free)
	seen := map[Word]bool{}
	for _, w := range words {
		assert.False(t, seen[w])
		seen[w] = true
		assert.Same(t, v, Take(w))
	}

	for i := range table {
		table[i].Lock()
	}
	wait := make(chan Word)
	go func() { wait <- New(v) }()
	select {
	case <-wait:
		t.Fatal("New used a shard that is locked")
	case <-time.After(20 * time.Millisecond):
	}
	for i := range table {
		table[i].Unlock()
	}
	assert.Same(t, v, Take(<-wait), "all were in use, then none was")
}

func TestShardsShareNoCacheLine(t *testing.T) {
	assert.EqualValues(t, apart, unsafe.Sizeof(table[0]))
	assert.Zero(t, firstSlots*unsafe.Sizeof(slot{})%64)
}

func TestNewAndTakeDoNotAllocate(t *testing.T) {
	v := &counter{}
	Take(newNear(0, v)) // grows the shard
	assert.Zero(t, testing.AllocsPerRun(100, func() { Take(newNear(0, v)) }))
}

func BenchmarkNewTake(b *testing.B) {
	b.Run("one goroutine", func(b *testing.B) {
		v := &counter{}
		for b.Loop() {
			Take(newNear(0, v))
		}
	})
	b.Run("all processors", func(b *testing.B) {
		var threads atomic.Uint32
		b.RunParallel(func(pb *testing.PB) {
			v, number := &counter{}, threads.Add(1)
			for pb.Next() {
				Take(newNear(number, v))
			}
		})
	})
}

// A burst of words does not keep its memory, and a word that has ended names no value afterwards. Words that live longer
// keep the slots before them.
func TestShardsShrinkAfterABurst(t *testing.T) {
	const burst = 20 * leastShrunk
	own := func(w Word) int { return len(shardOf(w).slots) }
	for _, c := range []struct {
		name        string
		live        int // the number of the word that lives longer, of each burst
		least, most int // slots afterwards
	}{{"none", -1, 0, leastShrunk}, {"the first", 0, 1, leastShrunk}, {"one of the last", burst - 10, burst / 2, 2 * burst}} {
		t.Run(c.name, func(t *testing.T) {
			before := Live()
			var stale, longer []Word
			for range 3 {
				words := make([]Word, burst)
				for i := range words {
					words[i] = newNear(3, &counter{})
				}
				assert.Greater(t, own(words[0]), leastShrunk)
				for i, w := range words {
					if i == c.live {
						longer = append(longer, w)
						continue
					}
					assert.NotNil(t, Take(w))
				}
				for range len(words) / 2 { // the shard looks now and then
					Take(newNear(3, &counter{}))
				}
				stale = append(stale, words...)
				assert.GreaterOrEqual(t, own(words[0]), c.least)
				assert.LessOrEqual(t, own(words[0]), c.most)
			}
			for _, w := range longer {
				assert.NotNil(t, Take(w))
			}
			again := make([]Word, burst)
			for i := range again {
				again[i] = newNear(3, &counter{})
			}
			for _, w := range stale {
				if Take(w) != nil {
					t.Fatalf("%#x names another value", w)
				}
			}
			for _, w := range again {
				assert.NotNil(t, Take(w))
			}
			assert.Equal(t, before, Live())
		})
	}
}
