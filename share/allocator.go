package share

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Allocator is a memory.Allocator of arrow-go over host memory that other processes can open: each allocation is a
// file without a name (memfd), which nobody can shrink, and which openers map read-only. It may be used from any
// goroutine.
//
// An allocation takes whole pages, a descriptor of the process, and some system calls: it is meant for the one
// allocation of [cdevice.RecordBatch.CopyToHost], not for builders of many columns.
type Allocator struct {
	limit int64
	used  atomic.Int64
}

// AllocatorOption is an option of [NewAllocator]. A nil option does nothing.
type AllocatorOption func(*Allocator)

// WithLimit bounds the bytes that the allocator holds, in whole pages.
func WithLimit(bytes int64) AllocatorOption { return func(a *Allocator) { a.limit = bytes } }

// NewAllocator returns an allocator. The error wraps device.ErrNotSupported where the system has no memfd.
func NewAllocator(opts ...AllocatorOption) (*Allocator, error) {
	a := new(Allocator)
	for _, opt := range opts {
		if opt != nil {
			opt(a)
		}
	}
	probe, err := newBlock(1) // an Allocator cannot return an error later
	if err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	probe.end()
	return a, nil
}

// Allocate returns size zeroed bytes, aligned to a page. It panics with an [*AllocationError] where there are none.
func (a *Allocator) Allocate(size int) []byte {
	b, err := a.allocate(size)
	if err != nil {
		panic(&AllocationError{"allocate", size, err})
	}
	return b
}

func (a *Allocator) allocate(size int) ([]byte, error) {
	switch {
	case size < 0:
		return nil, fmt.Errorf("negative size")
	case size == 0:
		return []byte{}, nil
	}
	bytes := wholePages(size)
	if used := a.used.Add(bytes); a.limit > 0 && used > a.limit {
		a.used.Add(-bytes)
		return nil, fmt.Errorf("%d bytes are in use, of at most %d", used-bytes, a.limit)
	}
	b, err := newBlock(int(bytes))
	if err != nil {
		a.used.Add(-bytes)
		return nil, err
	}
	b.of = a
	blocks.add(b)
	return b.bytes()[:size], nil
}

// Reallocate returns size bytes that begin with those of b; the bytes after them are zero. It frees b or returns a
// part of it, unless it panics as Allocate does.
func (a *Allocator) Reallocate(size int, b []byte) []byte {
	if size >= 0 && size <= cap(b) {
		clear(b[min(len(b), size):size])
		return b[:size]
	}
	out := a.Allocate(size)
	copy(out, b)
	a.Free(b)
	return out
}

// Free frees memory of this allocator, and panics with an [*AllocationError] for other memory.
func (a *Allocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	one := blocks.take(uintptr(unsafe.Pointer(unsafe.SliceData(b))), a)
	if one == nil {
		panic(&AllocationError{"free", len(b), fmt.Errorf("the memory is not of this allocator, or was freed")})
	}
	one.end()
	a.used.Add(-int64(one.size))
}

// Used returns how many bytes the allocator holds, in whole pages.
func (a *Allocator) Used() int64 { return a.used.Load() }

// AllocationError is the value with which an [Allocator] panics, because a memory.Allocator cannot return an error.
type AllocationError struct {
	Op   string // "allocate" or "free"
	Size int    // bytes
	Err  error  // the cause
}

// Error returns "share: allocate 1024 bytes: " and the cause.
func (e *AllocationError) Error() string {
	return fmt.Sprintf("share: %s %d bytes: %v", e.Op, e.Size, e.Err)
}

// Unwrap returns the cause.
func (e *AllocationError) Unwrap() error { return e.Err }

// block is one allocation.
type block struct {
	of          *Allocator
	file        int
	start, size uintptr
}

func (b *block) bytes() []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&b.start)), b.size) }

// blockList has all blocks of the process, in the order of their addresses.
type blockList struct {
	mu   sync.RWMutex
	list []*block
}

var blocks blockList

// search returns the index of the first block that does not end before p.
func (l *blockList) search(p uintptr) int {
	return sort.Search(len(l.list), func(i int) bool { return p < l.list[i].start+l.list[i].size })
}

func (l *blockList) add(b *block) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.search(b.start)
	l.list = append(l.list, nil)
	copy(l.list[i+1:], l.list[i:])
	l.list[i] = b
}

// find returns the block that p is in, or nil.
func (l *blockList) find(p uintptr) *block {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if i := l.search(p); i < len(l.list) && l.list[i].start <= p {
		return l.list[i]
	}
	return nil
}

// take removes the block of the allocator that starts at p, and returns it, or nil.
func (l *blockList) take(p uintptr, of *Allocator) *block {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.search(p)
	if i == len(l.list) || l.list[i].start != p || l.list[i].of != of {
		return nil
	}
	b := l.list[i]
	l.list = append(l.list[:i], l.list[i+1:]...)
	return b
}
