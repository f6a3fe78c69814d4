// Package hostcache makes a memory.Allocator of a device whose memory the host can
// read. Page-locking costs milliseconds, so what is freed is kept by size class.
package hostcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

// Source is where an Allocator has its memory from.
type Source interface {
	ID() device.ID
	Allocate(ctx context.Context, size int64, s device.Stream) (device.Memory, error)
}

// Error is what an Allocator panics with.
type Error struct {
	Device device.ID
	Size   int   // bytes asked for
	Err    error // why there are none
}

func (e *Error) Error() string {
	return fmt.Sprintf("allocate %d bytes of %s memory: %v", e.Size, e.Device, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrLimit is wrapped by the Error of an allocation that the allocator's limit, not
// the driver, refused.
var ErrLimit = errors.New("the allocator's limit is reached")

var errNotOurs = errors.New("freed twice, or never allocated here")

// Allocator is a memory.Allocator of arrow-go. What it gives is zeroed and aligned to
// 64 bytes. It may be used from any goroutine.
type Allocator struct {
	source Source
	limit  int64

	mu   sync.Mutex
	held int64             // bytes of all slabs
	used map[uintptr]block // given out, by address
	free [classes][]block
	open *slab // the one that small blocks are cut from

	live, peak int64 // bytes given out, by size class
}

// slab is one allocation of the source: one large block, or many small ones.
type slab struct {
	memory device.Memory
	cut    int64 // bytes that blocks were cut from
	live   int   // blocks given out
}

type block struct {
	slab   *slab
	offset int64
	class  int
}

func (b block) addr() uintptr { return uintptr(b.slab.memory.Ptr()) + uintptr(b.offset) }

func (b block) bytes() []byte {
	p := b.addr()
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), sizeOf(b.class))
}

// New returns an allocator that holds at most limit bytes of the source, cached
// ones included; 0 is no limit.
func New(source Source, limit int64) *Allocator {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	return &Allocator{source: source, limit: limit, used: map[uintptr]block{}}
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
	b, err := a.TryAllocate(size)
	if err != nil {
		panic(err)
	}
	return b
}

// TryAllocate is Allocate with an error instead of a panic, and without zeroing.
func (a *Allocator) TryAllocate(size int) ([]byte, error) {
	if size == 0 {
		return []byte{}, nil
	}
	b, err := a.take(size)
	if err != nil {
		return nil, &Error{a.source.ID(), size, err}
	}
	return b.bytes()[:size:size], nil
}

// Reallocate returns size bytes that begin with those of b and are zero behind
// them. It takes b, unless it panics.
func (a *Allocator) Reallocate(size int, b []byte) []byte {
	if cap(b) == 0 {
		return a.Allocate(size)
	}
	old, ok := a.find(b)
	if !ok {
		panic(&Error{a.source.ID(), size, errNotOurs})
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

// Free takes b, which Allocate or Reallocate returned, or the beginning of it. No
// copy from or to it may be under way. It panics with an *Error for any other memory.
func (a *Allocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	addr := address(b)
	freed, ok := a.used[addr]
	if !ok {
		panic(&Error{a.source.ID(), len(b), errNotOurs})
	}
	delete(a.used, addr)
	freed.slab.live--
	a.live -= sizeOf(freed.class)
	a.free[freed.class] = append(a.free[freed.class], freed)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (a *Allocator) find(b []byte) (block, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.used[address(b)]
	return found, ok
}

// take finds a cached block, cuts one from the open slab, or asks the source.
func (a *Allocator) take(size int) (block, error) {
	class, err := classOf(size)
	if err != nil {
		return block{}, err
	}
	a.mu.Lock()
	b, ok := a.cached(class)
	if ok {
		a.give(b)
		a.mu.Unlock()
		return b, nil
	}
	need := sizeOf(class)
	if need <= largestSmall && a.held+slabSize <= a.limit {
		need = slabSize
	}
	if a.held+need > a.limit {
		a.dropUnused()
	}
	if a.held+need > a.limit {
		a.mu.Unlock()
		return block{}, fmt.Errorf("%w: %d bytes of %d are held", ErrLimit, a.held, a.limit)
	}
	a.held += need // before the lock is let go: others must see it
	a.mu.Unlock()

	memory, err := a.source.Allocate(context.Background(), need, nil) // not locked: it takes long, and may trim this very cache

	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.held -= need
		return block{}, err
	}
	s := &slab{memory: memory}
	if need > sizeOf(class) {
		a.open = s // what is left of the one before is lost until all its blocks are free
	}
	b = s.cutOff(class)
	a.give(b)
	return b, nil
}

// cached finds a block of this class. Large ones may be up to twice as large.
func (a *Allocator) cached(class int) (block, bool) {
	last := class
	if sizeOf(class) > largestSmall {
		last = min(class+perDoubling, classes-1)
	}
	for c := class; c <= last; c++ {
		if n := len(a.free[c]); n > 0 {
			b := a.free[c][n-1]
			a.free[c] = a.free[c][:n-1]
			return b, true
		}
	}
	if a.open != nil && sizeOf(class) <= largestSmall && a.open.cut+sizeOf(class) <= slabSize {
		return a.open.cutOff(class), true
	}
	return block{}, false
}

func (s *slab) cutOff(class int) block {
	b := block{s, s.cut, class}
	s.cut += sizeOf(class)
	return b
}

func (a *Allocator) give(b block) {
	b.slab.live++
	a.used[b.addr()] = b
	a.live += sizeOf(b.class)
	a.peak = max(a.peak, a.live)
}

// Trim gives back to the device all that is cached, but for slabs of which a part
// is in use.
func (a *Allocator) Trim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropUnused()
}

func (a *Allocator) dropUnused() {
	dropped := map[*slab]bool{}
	for c := range a.free {
		kept := a.free[c][:0]
		for _, b := range a.free[c] {
			if b.slab.live == 0 {
				dropped[b.slab] = true
			} else {
				kept = append(kept, b)
			}
		}
		clear(a.free[c][len(kept):])
		a.free[c] = kept
	}
	for s := range dropped {
		if a.open == s {
			a.open = nil
		}
		a.held -= s.memory.Size()
		_ = s.memory.Free(nil) // the device tries again by itself
	}
}

// Stats are bytes: given out (as size classes), the most that were, and held of the
// device, cached ones included.
func (a *Allocator) Stats() (live, peak, held int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live, a.peak, a.held
}
