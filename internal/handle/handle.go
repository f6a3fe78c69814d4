// Package handle maps Go values to words that C memory can hold.
//
// It replaces runtime/cgo.Handle at a quarter of the cost and without allocating: it uses tables of
// slots with free lists. A word also has the generation of its slot, so that a word used after its
// release names no value, rather than the value that has the slot afterwards.
package handle

import (
	"math"
	"sync"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/live"
)

// Releaser is what a handle keeps alive: the Go side of a C struct. Release is
// called once, on the thread that released the C struct.
type Releaser interface{ Release() }

// Word is a handle as C memory stores it. Zero never names a value.
//
// No word looks like an address. Go code of another library may hold one in a field that Go
// takes for a pointer, a private_data; for a pointer into the heap that points to nothing
// the collector, or cgo's check of arguments, ends the process.
type Word uint64

// A word consists of a mark that no address has, the generation of a slot and its index+1. The high
// bits of an index are the slot's position in its shard, the low bits the number of the shard.
const (
	mark        = 1 << 62
	generations = 1 << 30

	shardBits = 6
	shards    = 1 << shardBits
	// apart is how many bytes two shards must not share: processors fetch cache lines in pairs.
	apart = 128
	// firstSlots is the capacity that a shard begins with: whole cache lines, so that it
	// shares none with another shard.
	firstSlots = 16
	// leastShrunk is the number of slots up to which a shard keeps them all.
	leastShrunk = 1024
)

// maxSlots is how many slots of a shard a word can name; tests have fewer.
var maxSlots = math.MaxUint32 / shards

type slot struct {
	value Releaser
	gen   uint32
	next  uint32 // position+1 of the next free slot of the shard, 0 at the end of the list
}

// shard is a part of the table. Each has a lock of its own, so that threads that export
// different values do not wait for each other.
type shard struct {
	state
	_ [apart - unsafe.Sizeof(state{})]byte
}

type state struct {
	sync.Mutex
	slots []slot
	free  uint32 // position+1 of the first free slot, 0 if there is none
	gen   uint32 // of new slots, less 1: no slot that was dropped has had a later one
	live  int
	taken int // words since shrink has looked
}

var table [shards]shard

// New returns a word for v, which stays reachable until Take.
func New(v Releaser) Word { return newNear(uint32(live.Near(shardBits)), v) }

// newNear is New with the number of the shard that it tries first.
func newNear(number uint32, v Releaser) Word {
	for i := range uint32(shards) { // a shard whose lock is free
		n := (number + i) % shards
		if s := &table[n]; s.TryLock() {
			w := s.add(v, n)
			s.Unlock()
			if w != 0 {
				return w
			}
		}
	}
	for i := range uint32(shards) { // or one that is not full
		n := (number + i) % shards
		s := &table[n]
		s.Lock()
		w := s.add(v, n)
		s.Unlock()
		if w != 0 {
			return w
		}
	}
	panic("handle: all words are in use")
}

// add puts v into a slot of the shard, whose number is n, and returns its word, or 0 when
// the shard is full. The shard is locked.
func (s *shard) add(v Releaser, n uint32) Word {
	i := s.free
	if i != 0 {
		s.free = s.slots[i-1].next
	} else if i = s.grow(); i == 0 {
		return 0
	}
	at := &s.slots[i-1]
	at.value = v
	s.live++
	return word(at.gen, i-1, n)
}

// word is that of a slot: its generation, its position in its shard, and the number of the shard.
func word(gen, position, n uint32) Word { return mark | Word(gen)<<32 | Word(position*shards+n+1) }

// grow adds a slot and returns its position+1, or 0 if the shard is full. The shard is locked.
func (s *shard) grow() uint32 {
	if len(s.slots) >= maxSlots {
		return 0
	}
	if s.slots == nil {
		s.slots = make([]slot, 0, firstSlots)
	}
	s.slots = append(s.slots, slot{gen: (s.gen + 1) % generations})
	return uint32(len(s.slots))
}

// shardOf returns the shard of the slot that w names. For a word that was never issued, it is any
// shard.
func shardOf(w Word) *shard { return &table[(uint32(w)-1)%shards] }

// Get returns the value of the word w, which stays valid, or nil if w names none.
func Get(w Word) Releaser {
	s := shardOf(w)
	s.Lock()
	defer s.Unlock()
	if at := s.find(w); at != nil {
		return at.value
	}
	return nil
}

// find returns the slot that w names, or nil. The shard is locked.
func (s *shard) find(w Word) *slot {
	place, gen := (uint32(w)-1)/shards, uint32((w^mark)>>32)
	if int(place) >= len(s.slots) {
		return nil
	}
	at := &s.slots[place]
	if at.gen != gen || at.value == nil {
		return nil
	}
	return at
}

// Take ends the word w and returns its value, or nil if w was never issued or was taken before.
func Take(w Word) Releaser {
	s := shardOf(w)
	s.Lock()
	defer s.Unlock()
	at := s.find(w)
	if at == nil {
		return nil
	}
	v := at.value
	at.value = nil
	at.gen = (at.gen + 1) % generations
	at.next, s.free = s.free, (uint32(w)-1)/shards+1
	s.live--
	s.taken++
	if len(s.slots) > leastShrunk && (s.live == 0 || s.taken >= len(s.slots)/2) {
		s.shrink()
	}
	return v
}

// shrink drops the slots behind the last one in use, if these are half of all: a burst of exports does not keep the
// memory of its handles. The shard is locked.
func (s *shard) shrink() {
	s.taken = 0
	used := len(s.slots)
	for used > 0 && s.slots[used-1].value == nil {
		used--
	}
	if used > len(s.slots)/2 {
		return
	}
	for _, dropped := range s.slots[used:] {
		s.gen = max(s.gen, dropped.gen)
	}
	s.slots = append(make([]slot, 0, max(used, firstSlots)), s.slots[:used]...)
	s.free = 0
	for i := used; i > 0; i-- {
		if at := &s.slots[i-1]; at.value == nil {
			at.next, s.free = s.free, uint32(i)
		}
	}
}

// Live returns the number of words that were issued and not yet taken. It is exact unless another
// thread issues or takes one at the same time.
func Live() (n int) {
	for i := range table {
		s := &table[i]
		s.Lock()
		n += s.live
		s.Unlock()
	}
	return n
}

// All returns the words whose values a function accepts. Others may end them meanwhile.
func All(accepts func(Releaser) bool) []Word {
	var all []Word
	for n := range table {
		s := &table[n]
		s.Lock()
		for i := range s.slots {
			if at := &s.slots[i]; at.value != nil && accepts(at.value) {
				all = append(all, word(at.gen, uint32(i), uint32(n)))
			}
		}
		s.Unlock()
	}
	return all
}
