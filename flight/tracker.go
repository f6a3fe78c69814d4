package flight

import (
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// tracker is the allocator of a received stream. arrow-go does not release everything if reading a
// message fails, so the tracker knows the memory that was taken for the message that is being read.
type tracker struct {
	mem memory.Allocator

	mu  sync.Mutex
	own map[*byte][]byte // taken since begin, and not freed
}

var _ memory.Allocator = (*tracker)(nil)

func newTracker(mem memory.Allocator) *tracker {
	return &tracker{mem: mem, own: map[*byte][]byte{}}
}

// keep notes memory that belongs to the message.
func (t *tracker) keep(b []byte) {
	if p := unsafe.SliceData(b); cap(b) > 0 {
		t.mu.Lock()
		t.own[p] = b
		t.mu.Unlock()
	}
}

func (t *tracker) forget(b []byte) {
	if p := unsafe.SliceData(b); cap(b) > 0 {
		t.mu.Lock()
		delete(t.own, p)
		t.mu.Unlock()
	}
}

func (t *tracker) Allocate(size int) []byte {
	b := t.mem.Allocate(size)
	t.keep(b)
	return b
}

// Reallocate makes the old memory unknown first: another stream may have it as soon as it is freed.
func (t *tracker) Reallocate(size int, b []byte) []byte {
	t.forget(b)
	moved := b
	defer func() { t.keep(moved) }() // even if there is no memory, and b stays
	moved = t.mem.Reallocate(size, b)
	return moved
}

func (t *tracker) Free(b []byte) {
	t.forget(b)
	t.mem.Free(b)
}

// passed notes that the message was read: its memory belongs to its arrays.
func (t *tracker) passed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.own)
}

// failed frees what reading the message has left behind. Nothing refers to it: the reader was released.
func (t *tracker) failed() {
	t.mu.Lock()
	left := t.own
	t.own = map[*byte][]byte{}
	t.mu.Unlock()
	for _, b := range left {
		t.mem.Free(b)
	}
}
