package sizeclass

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// Error is the value of an Allocator's panic, unless [Public] converts it to a public error.
type Error struct {
	Op     string // "allocate", "reallocate" or "free"
	Device device.ID
	Size   int   // bytes asked for, or those of the memory that is not the allocator's
	Err    error // the cause
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %d bytes of %s memory: %v", e.Op, e.Size, e.Device, e.Err)
}

const (
	opAllocate   = "allocate"
	opReallocate = "reallocate"
	opFree       = "free"
)

func (e *Error) Unwrap() error { return e.Err }

var errNoContext = fmt.Errorf("ctx = nil, want a context: %w", arrow.ErrInvalid)

var errNotOurs = errors.New("freed twice, or never allocated here")

// Allocator is a memory.Allocator of arrow-go over a cache of CPU-accessible memory.
// Its memory is zeroed and aligned to 64 bytes. It may be used from any goroutine.
type Allocator struct {
	cache *Cache

	fallback *Fallback          // nil: an allocation that finds no memory fails
	advice   string             // for the error of one that exceeds the limit
	public   func(*Error) error // makes the error that users see

	mu     sync.Mutex
	used   map[uintptr]allocation // by address
	blocks int64                  // of the cache among them
	total  int64                  // blocks ever allocated
}

// allocation is memory in use: a block of the cache, or memory of the fallback.
type allocation struct {
	block Block
	plain []byte // as the fallback returned it; nil for a block
}

// NewAllocator returns an allocator over a cache, which others may use too.
func NewAllocator(cache *Cache) *Allocator {
	return &Allocator{cache: cache, used: map[uintptr]allocation{}, public: func(e *Error) error { return e }}
}

// Public makes the allocator's errors those that public returns. It is called before the allocator
// is used.
func Public(a *Allocator, public func(*Error) error) { a.public = public }

// Advise adds advice to the errors of allocations that exceed the limit. It is called before the
// allocator is used.
func Advise(a *Allocator, advice string) { a.advice = advice }

func (a *Allocator) failed(op string, size int, err error) error {
	return a.public(&Error{Op: op, Device: a.cache.ID(), Size: size, Err: err})
}

func (a allocation) bytes() []byte {
	if a.plain != nil {
		return a.plain
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&a.block.Ptr)), a.block.Size)
}

// Allocate returns size zeroed bytes. It panics with an *Error if there are none.
func (a *Allocator) Allocate(size int) []byte {
	b := a.AllocateUninitialized(size)
	clear(b)
	return b
}

// AllocateUninitialized is Allocate without zeroing, for memory that is overwritten
// anyway. The memory is freed like any other.
func (a *Allocator) AllocateUninitialized(size int) []byte {
	b, err := a.TryAllocate(context.Background(), size)
	if err != nil {
		panic(err)
	}
	return b
}

// TryAllocate is Allocate with an error instead of a panic, and without zeroing. ctx ends a
// wait for memory.
func (a *Allocator) TryAllocate(ctx context.Context, size int) ([]byte, error) {
	if ctx == nil {
		return nil, a.failed(opAllocate, size, errNoContext)
	}
	if size == 0 {
		return []byte{}, nil
	}
	taken, err := a.take(ctx, size)
	if err != nil {
		return nil, a.failed(opAllocate, size, err)
	}
	b := taken.bytes()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[address(b)] = taken
	if taken.plain == nil {
		a.blocks++
		a.total++
	}
	return b[:size:size], nil
}

func (a *Allocator) take(ctx context.Context, size int) (allocation, error) {
	if a.fallback != nil {
		return a.fallback.take(ctx, a.cache, size)
	}
	block, err := a.cache.Take(ctx, int64(size))
	if a.advice != "" && errors.Is(err, ErrLimit) {
		err = fmt.Errorf("%w; %s", err, a.advice)
	}
	return allocation{block: block}, err
}

// Reallocate returns size bytes that begin with those of b and are zero behind
// them. It frees b or returns a part of it, unless it panics.
func (a *Allocator) Reallocate(size int, b []byte) []byte {
	if cap(b) == 0 {
		return a.Allocate(size)
	}
	old, ok := a.find(b)
	if !ok {
		panic(a.failed(opReallocate, len(b), errNotOurs))
	}
	if whole := old.bytes(); size >= 0 && size <= len(whole) && size > len(whole)/4 {
		grown := whole[:size:size]
		if size > len(b) {
			clear(grown[len(b):])
		}
		return grown
	}
	moved := a.Allocate(size)
	copy(moved, b)
	a.Free(b)
	return moved
}

// Free frees b, which Allocate or Reallocate returned, or the beginning of it. No
// copy from or to it may be pending. It panics with an *Error for any other memory.
func (a *Allocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	freed, ok := a.forget(b)
	if !ok {
		panic(a.failed(opFree, len(b), errNotOurs))
	}
	if freed.plain != nil {
		a.fallback.free(freed.plain)
		return
	}
	a.cache.Give(freed.block)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (a *Allocator) find(b []byte) (allocation, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.used[address(b)]
	return found, ok
}

func (a *Allocator) forget(b []byte) (allocation, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.used[address(b)]
	if ok && found.plain == nil {
		a.blocks--
	}
	delete(a.used, address(b))
	return found, ok
}

// Trim gives all cached memory back to the device, except slabs of which a part is in use.
func (a *Allocator) Trim() { a.cache.Trim() }

// Use counts memory that an [Allocator] has allocated, and the memory that it holds of its source.
type Use struct {
	Live        int64 // bytes in use, as size classes of a cache
	Peak        int64 // the most that Live was
	Held        int64 // bytes of the source
	Cached      int64 // bytes of them in slabs of which nothing is in use
	Allocations int64 // in use
	Total       int64 // ever made
}

// Stats returns the use of the cache and of the fallback.
func (a *Allocator) Stats() (cache, fallback Use) {
	s := a.cache.Stats()
	if a.fallback != nil {
		fallback = a.fallback.Stats()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return Use{Live: s.Live, Peak: s.Peak, Held: s.Held, Cached: s.Idle, Allocations: a.blocks, Total: a.total}, fallback
}
