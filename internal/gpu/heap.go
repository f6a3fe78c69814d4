package gpu

import (
	"context"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Heap allocates the memory of one GPU: device memory from a pool in stream order, shareable memory from
// the driver, page-locked and managed memory from caches by size class.
type Heap struct {
	ctx  *cuda.Context
	pool cuda.Pool // 0: no stream-ordered allocation
	// background is the stream on which memory is freed that no work uses any more. It
	// never waits for anything.
	background uintptr
	deferred   *Deferred
	locked     *ranges

	usage      [purposes]usage
	opened     usage                      // memory of other processes
	registered usage                      // see [Heap.RegisterMemory]
	caches     [purposes]*sizeclass.Cache // nil: from the pool
	trims      trims
	limits     limits
	trimmer    trimmer
	// reclaiming is held by the allocation that reclaims memory; it has room for one.
	reclaiming chan struct{}
}

// init makes the caches. pool may be 0.
func (h *Heap) init(ctx *cuda.Context, deferred *Deferred, locked *ranges, pool cuda.Pool, background uintptr) {
	h.ctx, h.deferred, h.locked, h.pool, h.background = ctx, deferred, locked, pool, background
	h.reclaiming, h.trims.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	for purpose, kind := range [purposes]device.MemoryKind{onDevice: device.OwnMemory, onHost: device.PinnedMemory, inManaged: device.ManagedMemory} {
		if purpose != onDevice || pool == 0 {
			h.caches[purpose] = sizeclass.New(source{h, kind}, sizeclass.Limits{})
		}
	}
}

// ID returns the ID of memory of a kind.
func (h *Heap) ID(kind device.MemoryKind) device.ID {
	return device.ID{Type: TypeOf(kind), Ordinal: int64(h.ctx.Ordinal())}
}

// Allocate makes m owned memory of a kind, of size bytes. Memory of the pool is allocated on a stream of
// the GPU of.
func (h *Heap) Allocate(ctx context.Context, m *Memory, kind device.MemoryKind, size int64, of *GPU, stream uintptr) error {
	if err := h.pushBack(ctx, kind, size); err != nil {
		return err
	}
	m.heap, m.kind, m.use, m.size = h, kind, &h.usage[purposeOf(kind)], size
	if size == 0 {
		return nil
	}
	err := m.take(ctx, of, stream)
	if isOutOfMemory(err) {
		err = h.reclaim(ctx, kind, size, err, func() error { return m.take(ctx, of, stream) })
	}
	if err != nil {
		return err
	}
	m.use.add(size)
	return nil
}

// watcher is told which parts of memory are in use: a simulated driver, or nil.
func (h *Heap) watcher() sizeclass.Watcher {
	if !h.ctx.Watched() {
		return nil
	}
	return h.ctx
}

// Usage returns how much memory of a kind is in use; that of shareable memory counts as own.
func (h *Heap) Usage(kind device.MemoryKind) sizeclass.Use {
	purpose := purposeOf(kind)
	all := h.usage[purpose].read()
	if cache := h.caches[purpose]; cache != nil {
		s := cache.Stats()
		all.Held, all.Cached = s.Held, s.Idle
	}
	return all
}

// UsageOfOthers returns how much memory of other processes is open, and how much host memory is registered.
func (h *Heap) UsageOfOthers() (opened, registered sizeclass.Use) {
	return h.opened.read(), h.registered.read()
}

// keeps reports whether a cache keeps anything.
func (h *Heap) keeps() bool {
	for _, cache := range h.caches {
		if cache != nil && cache.Stats().Idle > 0 {
			return true
		}
	}
	return false
}

// OnTrim registers trim, which frees cached memory of this GPU, for as long as the process lives:
// [GPU.Trim] calls it, and so does an allocation that finds no memory. It is called on a
// goroutine of its own, and should not wait: Trim waits for it until its context ends, an
// allocation for at most two seconds. A panic of it is logged.
func (h *Heap) OnTrim(trim func()) { h.trims.add(trim) }

// trimCaches gives cached memory back to the driver.
func (h *Heap) trimCaches() {
	for _, cache := range h.caches {
		if cache != nil {
			cache.Trim()
		}
	}
}

// source is the driver's memory of one kind, which a cache takes in large pieces.
type source struct {
	heap *Heap
	kind device.MemoryKind
}

// ID returns the ID of the memory.
func (s source) ID() device.ID { return s.heap.ID(s.kind) }

// Allocate asks the driver. It does not wait.
func (s source) Allocate(ctx context.Context, size int64) (p device.Ptr, err error) {
	switch s.kind {
	case device.PinnedMemory:
		p, err = s.heap.ctx.NewHost(size)
	case device.ManagedMemory:
		p, err = s.heap.ctx.NewManaged(size)
	default:
		p, err = s.heap.ctx.NewMemory(size)
	}
	if err != nil {
		return 0, err
	}
	if s.kind != device.OwnMemory {
		s.heap.locked.add(p, size, s.kind == device.ManagedMemory)
	}
	return p, nil
}

// Watcher is told which parts of the memory are in use, unless it is nil.
func (s source) Watcher(device.Ptr) sizeclass.Watcher { return s.heap.watcher() }

// Free gives memory back to the driver that no pending work uses, when the GPU is idle.
func (s source) Free(p device.Ptr, size int64) {
	if s.kind != device.OwnMemory {
		s.heap.locked.remove(p)
	}
	s.heap.deferred.add(&Deferral{idle: true, cached: true, bytes: size, end: func() error {
		if s.kind == device.PinnedMemory {
			return s.heap.ctx.FreeHost(p)
		}
		return s.heap.ctx.FreeMemory(p)
	}})
}
