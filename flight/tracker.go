package flight

import (
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// tracker is the allocator of a received stream. arrow-go does not release everything if reading a
// message fails, so the tracker knows the memory that was taken for the message that is being read.
type tracker struct {
	mem  memory.Allocator
	heap bool // take memory of the Go heap instead; set and read where messages are read

	mu    sync.Mutex
	taken map[uintptr]struct{} // memory of mem that is in use
	own   map[uintptr][]byte   // of that, what was taken since the last message was read
}

var _ memory.Allocator = (*tracker)(nil)

// heapMemory needs no Free.
var heapMemory = memory.NewGoAllocator()

func newTracker(mem memory.Allocator) *tracker {
	return &tracker{mem: mem, taken: map[uintptr]struct{}{}, own: map[uintptr][]byte{}}
}

// keep notes memory of mem, which belongs to the message.
func (t *tracker) keep(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken[start(b)], t.own[start(b)] = struct{}{}, b
}

// forget reports whether b is memory of mem, which it is not for the tracker any more.
func (t *tracker) forget(b []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, is := t.taken[start(b)]
	delete(t.taken, start(b))
	delete(t.own, start(b))
	return is
}

func start(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (t *tracker) Allocate(size int) []byte { return t.take(size, t.mem.Allocate) }

// AllocateUninitialized returns memory that is overwritten at once.
func (t *tracker) AllocateUninitialized(size int) []byte {
	return t.take(size, func(size int) []byte { return allocate(t.mem, size) })
}

func (t *tracker) take(size int, of func(int) []byte) []byte {
	if size == 0 {
		return []byte{}
	}
	if t.heap {
		return heapMemory.Allocate(size)
	}
	b := of(size)
	t.keep(b)
	return b
}

// Reallocate makes the old memory unknown first: another stream may have it as soon as it is freed.
func (t *tracker) Reallocate(size int, b []byte) []byte {
	if cap(b) == 0 {
		return t.Allocate(size)
	}
	if !t.forget(b) {
		return heapMemory.Reallocate(size, b)
	}
	moved := b
	defer func() { t.keep(moved) }() // even if there is no memory, and b stays
	moved = t.mem.Reallocate(size, b)
	return moved
}

func (t *tracker) Free(b []byte) {
	if cap(b) > 0 && t.forget(b) {
		t.mem.Free(b)
	}
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
	t.own = map[uintptr][]byte{}
	for p := range left {
		delete(t.taken, p)
	}
	t.mu.Unlock()
	for _, b := range left {
		t.mem.Free(b)
	}
}
