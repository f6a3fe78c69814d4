package share

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/hostfile"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Allocator is a memory.Allocator of arrow-go over host memory that other processes can open: each allocation is an anonymous
// file (memfd) of a fixed size, which openers map read-only. It may be used from any goroutine.
//
// An allocation takes whole pages, a file descriptor and several system calls, and with [WithPinnedMemory] it is page-locked. So
// use it for the single allocation of [cdevice.RecordBatch.CopyToHost], not for builders of many columns.
type Allocator struct {
	gpu   device.HostRegistrar // page-locks the memory; nil: none does
	dev   device.Device        // of the memory
	quota quota
}

// AllocatorOption is an option of [NewAllocator].
type AllocatorOption func(*allocatorOptions)

type allocatorOptions struct {
	firstError
	limit int64
	gpu   device.HostRegistrar
	dev   device.Device
}

// firstError keeps the first error of the options of a call.
type firstError struct{ err error }

func (e *firstError) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// ErrLimit is wrapped by the [AllocationError] of an allocation that would exceed the limit of its allocator. It is
// hostpinned.ErrLimit.
var ErrLimit = sizeclass.ErrLimit

// WithLimit bounds the bytes that the allocator holds, in whole pages; 0 is no limit.
func WithLimit(bytes int64) AllocatorOption {
	return func(o *allocatorOptions) {
		if bytes < 0 {
			o.fail(fmt.Errorf("share: NewAllocator: WithLimit(%d), want 0 or more: %w", bytes, arrow.ErrInvalid))
		}
		o.limit = bytes
	}
}

// WithPinnedMemory page-locks the memory, for every GPU of this process: a GPU copies from it and to it at full speed,
// and other processes open it as they open all memory of an [Allocator]. Batches in it are wrapped as memory of
// [Allocator.Device], device.CUDAHost.
//
// Page-locking takes milliseconds, and the rest of the machine cannot use the memory: set [WithLimit]. Freed memory is unlocked
// once gpu has no pending work and no stream is being captured, and counts towards the limit until then. An allocation beyond the
// limit waits for freed memory, until none was unlocked for two seconds.
func WithPinnedMemory(gpu device.Device) AllocatorOption {
	return func(o *allocatorOptions) {
		r, err := hostfile.Registrar("share: NewAllocator: WithPinnedMemory", gpu)
		if err != nil {
			o.fail(err)
			return
		}
		dev, err := r.WithMemory(device.PinnedMemory)
		if err != nil {
			o.fail(fmt.Errorf("share: NewAllocator: WithPinnedMemory: %w", err))
		}
		o.gpu, o.dev = r, dev
	}
}

// NewAllocator returns an allocator. The error wraps device.ErrNotSupported where the system has no memfd, or its
// driver cannot page-lock such memory.
func NewAllocator(opts ...AllocatorOption) (*Allocator, error) {
	o := allocatorOptions{dev: device.CPUDevice()}
	if err := argument.Apply("share: NewAllocator", &o, opts); err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, o.err
	}
	other := &Allocator{gpu: o.gpu}
	probe, err := other.newBlock(wholePages(1)) // an Allocator cannot return an error later
	if err != nil {
		return nil, fmt.Errorf("share: NewAllocator: %w", err)
	}
	other.end(probe)
	return &Allocator{gpu: o.gpu, dev: o.dev, quota: quota{limit: o.limit}}, nil
}

// Allocate returns size zeroed bytes, aligned to a page. It panics with an [*AllocationError] if it cannot allocate them.
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
		return nil, errors.New("negative size")
	case size == 0:
		return []byte{}, nil
	}
	b, err := a.newBlock(wholePages(size))
	if err != nil {
		return nil, err
	}
	blocks.add(b)
	return b.bytes()[:size], nil
}

// newBlock allocates a block, and page-locks it if the allocator has a GPU.
func (a *Allocator) newBlock(bytes int64) (*block, error) {
	if err := a.quota.reserve(bytes); err != nil {
		return nil, err
	}
	b, err := newBlock(int(bytes))
	if err != nil {
		a.quota.release(bytes)
		return nil, err
	}
	b.of = a
	if a.gpu == nil {
		return b, nil
	}
	// mutant: if b.locked, err = a.gpu.RegisterMemory(device.Ptr(b.start), bytes, false, nil); err == nil { b.unlocked() }
	b.locked, err = a.gpu.RegisterMemory(device.Ptr(b.start), bytes, false, b.unlocked)
	if err != nil {
		b.end() // mutant: deleted
		a.quota.release(bytes)
		return nil, fmt.Errorf("page-lock: %w", err)
	}
	return b, nil
}

// end frees a block: now, or once the driver has unlocked it.
func (a *Allocator) end(b *block) {
	if b.locked == nil {
		b.end()
		a.quota.release(int64(b.size))
		return
	}
	a.quota.beginFree(int64(b.size))
	_ = b.locked.FreeAfter(nil) // the device retries what fails; lost memory stays mapped
}

// unlocked frees a block after the driver has unlocked it.
func (b *block) unlocked() {
	b.end()
	b.of.quota.endFree(int64(b.size))
}

// Reallocate returns size bytes that begin with those of b; the bytes after them are zero. It frees b or returns a
// part of it, unless it panics as Allocate does.
func (a *Allocator) Reallocate(size int, b []byte) []byte {
	if size >= 0 && size <= cap(b) {
		clear(b[min(len(b), size):size])
		return b[:size]
	}
	if cap(b) > 0 && !blocks.has(start(b), a) {
		panic(errForeign("reallocate", b))
	}
	out := a.Allocate(size)
	copy(out, b)
	a.Free(b)
	return out
}

// Free frees memory of this allocator. It panics with an [*AllocationError] for any other memory.
func (a *Allocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	one := blocks.take(start(b), a)
	if one == nil {
		panic(errForeign("free", b))
	}
	a.end(one)
}

func start(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func errForeign(op string, b []byte) *AllocationError {
	return &AllocationError{op, len(b), errors.New("the memory is not of this allocator, or was freed")}
}

// Stats describes the memory of an [Allocator], in bytes of whole pages.
type Stats struct {
	Held    int64 // counts towards WithLimit
	Freeing int64 // the part of Held that was freed and is still page-locked
}

// ReadStats returns the current use of memory.
func (a *Allocator) ReadStats() Stats { return a.quota.stats() }

// Device returns the device whose memory this is, for [cdevice.WrapRecordBatch]: the pinned memory of the GPU of
// [WithPinnedMemory], or the CPU.
func (a *Allocator) Device() device.Device { return a.dev }

// AllocationError is the value with which an [Allocator] panics, because a memory.Allocator cannot return an error.
type AllocationError struct {
	Op   string // "allocate", "reallocate" or "free"
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
	locked      device.Memory // by the driver; or nil
}

func (b *block) bytes() []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&b.start)), b.size) }

// blockList is all blocks of the process, in the order of their addresses.
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

// has reports whether a block of the allocator starts at p.
func (l *blockList) has(p uintptr, of *Allocator) bool {
	b := l.find(p)
	return b != nil && b.start == p && b.of == of
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
