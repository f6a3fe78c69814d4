// Package handle gives a Go value a name that fits in one word of C memory.
//
// It does what runtime/cgo.Handle does, for a quarter of the price and without
// allocating: a slot table with a free list. A word also carries the generation
// of its slot, so that a word used after its release names nothing, instead of
// whatever moved in afterwards.
package handle

import "sync"

// Releaser is what a handle keeps alive: the Go side of a C struct. Release is
// called once, on whatever thread the C struct was released on.
type Releaser interface{ Release() }

// Word is a handle as C memory stores it. Zero never names a value.
//
// No word looks like an address. Go code of another library may hold one in a field that Go
// takes for a pointer, a private_data; for a pointer into the heap that points to nothing
// the collector, or cgo's check of arguments, ends the process.
type Word uint64

// A word is a mark that no address has, the generation and the index+1 of a slot.
const (
	mark        = 1 << 62
	generations = 1 << 30
)

type slot struct {
	value Releaser
	gen   uint32
	next  uint32 // index+1 of the next free slot, 0 at the end of the list
}

var table struct {
	sync.Mutex
	slots []slot
	free  uint32 // index+1 of the first free slot, 0 when there is none
	live  int
}

// New returns a word for v, which stays reachable until Take.
func New(v Releaser) Word {
	table.Lock()
	i := table.free
	if i != 0 {
		table.free = table.slots[i-1].next
	} else {
		table.slots = append(table.slots, slot{gen: 1})
		i = uint32(len(table.slots))
	}
	s := &table.slots[i-1]
	s.value = v
	gen := s.gen
	table.live++
	table.Unlock()
	return mark | Word(gen)<<32 | Word(i)
}

// Get returns the value of the word w, which goes on, or nil when w names none.
func Get(w Word) Releaser {
	table.Lock()
	defer table.Unlock()
	if s := find(w); s != nil {
		return s.value
	}
	return nil
}

// find returns the slot that w names, or nil. The table is locked.
func find(w Word) *slot {
	i, gen := uint32(w), uint32((w^mark)>>32)
	if i == 0 || int(i) > len(table.slots) {
		return nil
	}
	s := &table.slots[i-1]
	if s.gen != gen || s.value == nil {
		return nil
	}
	return s
}

// Take ends the word w and returns its value, or nil when w names none: it was
// never issued, or was taken before.
func Take(w Word) Releaser {
	table.Lock()
	defer table.Unlock()
	s := find(w)
	if s == nil {
		return nil
	}
	v := s.value
	s.value = nil
	s.gen = (s.gen + 1) % generations
	s.next, table.free = table.free, uint32(w)
	table.live--
	return v
}

// Live is the number of words that were issued and not yet taken.
func Live() int {
	table.Lock()
	defer table.Unlock()
	return table.live
}
