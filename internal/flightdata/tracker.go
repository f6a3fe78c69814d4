package flightdata

import (
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Tracker is the allocator of a received stream. arrow-go does not release everything if it fails to read a message, so
// the tracker knows the memory that was allocated for the message that is being read.
type Tracker struct {
	// OnHeap makes allocations memory of the Go heap instead. It belongs to the goroutine that reads messages.
	OnHeap bool

	mem     memory.Allocator
	mu      sync.Mutex
	live    map[uintptr]struct{} // memory of mem that is in use
	current map[uintptr][]byte   // of that, the memory of the message that is being read
}

var _ memory.Allocator = (*Tracker)(nil)

// HeapMemory needs no Free.
var HeapMemory = memory.NewGoAllocator()

// NewTracker returns an allocator of memory of mem.
func NewTracker(mem memory.Allocator) *Tracker {
	return &Tracker{mem: mem, live: map[uintptr]struct{}{}, current: map[uintptr][]byte{}}
}

// Adopt returns a buffer of the body of the message that is being read, which is memory of mem, or of the Go heap.
func (t *Tracker) Adopt(body []byte, owner memory.Allocator) *memory.Buffer {
	if owner == nil {
		return memory.NewBufferBytes(body)
	}
	t.add(body)
	return memory.NewBufferWithAllocator(body, t)
}

func (t *Tracker) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[start(b)], t.current[start(b)] = struct{}{}, b
}

// remove reports whether b is memory of mem, and forgets it.
func (t *Tracker) remove(b []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.live[start(b)]
	delete(t.live, start(b))
	delete(t.current, start(b))
	return ok
}

func start(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Allocate implements memory.Allocator.
func (t *Tracker) Allocate(size int) []byte { return t.take(size, memory.Allocator.Allocate) }

// AllocateUninitialized returns memory whose contents are undefined.
func (t *Tracker) AllocateUninitialized(size int) []byte { return t.take(size, allocate) }

func (t *Tracker) take(size int, from func(memory.Allocator, int) []byte) []byte {
	switch {
	case size == 0:
		return []byte{}
	case t.OnHeap:
		return HeapMemory.Allocate(size)
	}
	b := from(t.mem, size)
	t.add(b)
	return b
}

// Reallocate implements memory.Allocator. It forgets b first: another stream may get the memory as soon as it is freed.
func (t *Tracker) Reallocate(size int, b []byte) []byte {
	if cap(b) == 0 {
		return t.Allocate(size)
	}
	if !t.remove(b) {
		return HeapMemory.Reallocate(size, b)
	}
	moved := b
	defer func() { t.add(moved) }() // even if mem panics, and b stays
	moved = t.mem.Reallocate(size, b)
	return moved
}

// Free implements memory.Allocator.
func (t *Tracker) Free(b []byte) {
	if cap(b) > 0 && t.remove(b) {
		t.mem.Free(b)
	}
}

// MessageRead ends the message: its memory belongs to its arrays, which release it.
func (t *Tracker) MessageRead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.current)
}

// FreeUnread frees the memory of a message that was not read to its end. Nothing may refer to it: the reader was released.
func (t *Tracker) FreeUnread() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, b := range t.current {
		delete(t.live, p)
		t.mem.Free(b)
	}
	clear(t.current)
}

// allocate returns memory of mem whose contents are undefined.
func allocate(mem memory.Allocator, n int) []byte {
	if u, ok := mem.(interface{ AllocateUninitialized(int) []byte }); ok {
		return u.AllocateUninitialized(n)
	}
	return mem.Allocate(n)
}
