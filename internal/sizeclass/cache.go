// Package sizeclass keeps memory of a device that is expensive to allocate, by size
// class, and never touches it. Allocator makes an arrow-go memory.Allocator of a cache
// whose memory is CPU-accessible.
package sizeclass

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
)

// Source allocates the memory of a [Cache]: the driver. Its methods are called from any
// goroutine, without a lock of the cache held, so they may trim the cache. Allocate must
// not take from it.
type Source interface {
	ID() device.ID
	// Allocate returns size bytes, aligned to 64 bytes at least.
	Allocate(ctx context.Context, size int64) (device.Ptr, error)
	// Free ends memory that Allocate returned. It may block until the device is idle.
	// Where the driver fails, the source tries again by itself.
	Free(p device.Ptr, size int64)
}

// Watcher is told who may use memory of a source, part by part, where a simulated driver checks that.
type Watcher interface {
	HandOut(p device.Ptr, size int64) // to a new user, whose work is ordered after no other
	Keep(p device.Ptr, size int64)    // in the cache: no pending work uses it
}

// Limits bound how much a [Cache] holds, in bytes.
type Limits struct {
	// Total is the most that is held of the source, idle slabs included; 0: no limit.
	Total int64
	// Idle is the most that is kept in slabs of which nothing is in use; 0: no limit,
	// negative: none is kept.
	Idle int64
}

func (l Limits) normal() Limits {
	if l.Total <= 0 {
		l.Total = math.MaxInt64
	}
	if l.Idle == 0 {
		l.Idle = math.MaxInt64
	}
	l.Idle = max(l.Idle, 0)
	return l
}

// Stats describes a [Cache]. The difference of Held and Live+Idle is free memory in slabs
// that are partly in use, and memory on its way from or to the source.
type Stats struct {
	Live int64 // bytes of the blocks in use, as size classes
	Peak int64 // the most that Live was
	Held int64 // bytes of the source
	Idle int64 // bytes of the slabs of which nothing is in use

	Hits, Misses int64 // blocks taken without and with a call of the source
}

// ErrLimit is wrapped by the error of an allocation that the cache's limit, not
// the driver, refused.
var ErrLimit = errors.New("the allocator's limit is reached")

// Block is memory in use. It is returned to its cache once.
type Block struct {
	Ptr  device.Ptr
	Size int64 // bytes of its class: at least the requested size

	piece *piece
	use   uint64 // of the piece
}

// Cache keeps the memory of a source. It may be used from any goroutine.
type Cache struct {
	source Source

	mu      sync.Mutex
	limits  Limits             // normal
	stats   Stats              // all but Idle
	idle    int64              // bytes of the idle slabs
	leaving int64              // bytes held that are being freed
	wholes  [classes]list      // idle slabs
	free    [smallClasses]list // pieces of slabs that are partly in use
	open    [len(tiers)]*slab  // the slabs, partly in use, that pieces are cut from
	filling [len(tiers)]bool   // a slab is being allocated by the source
	changed chan struct{}      // closed at the next change, where a Take waits for it
	epoch   uint64             // calls of TrimUnused
}

// New returns an empty cache.
func New(source Source, limits Limits) *Cache {
	return &Cache{source: source, limits: limits.normal()}
}

// ID returns the device whose memory this is.
func (c *Cache) ID() device.ID { return c.source.ID() }

// Take returns a block of size bytes or more, more than zero: a cached one, one that is cut from a
// slab, or one of the source. It is aligned to 64 bytes at least, and to 256 if it has as many and the
// source aligns its memory to them. Where the limit is reached, idle slabs are freed and waited for;
// where that is not enough, the error wraps [ErrLimit]. ctx ends a wait.
func (c *Cache) Take(ctx context.Context, size int64) (Block, error) {
	class, err := classOf(size)
	if err != nil {
		return Block{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if p := c.cached(class); p != nil {
			c.stats.Hits++
			return c.use(p), nil
		}
		if class >= smallClasses || !c.filling[tierOf(class)] {
			if sizeOf(class) <= c.limits.Total-c.stats.Held {
				return c.fetch(ctx, class)
			}
			if err := c.makeRoom(sizeOf(class)); err != nil {
				return Block{}, err
			}
		}
		// mutant: if err := error(ErrLimit); err != nil {
		if err := c.untilChanged(ctx); err != nil {
			return Block{}, err
		}
	}
}

// TryTake is Take without the source: it reports whether there is a cached block.
func (c *Cache) TryTake(size int64) (Block, bool) {
	class, err := classOf(size)
	if err != nil {
		return Block{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.cached(class)
	if p == nil {
		return Block{}, false
	}
	c.stats.Hits++
	return c.use(p), true
}

// Give returns a block to the cache that is no longer used. Idle memory above the limit is freed on this
// goroutine. Returning a block twice panics.
func (c *Cache) Give(b Block) {
	c.release(c.put(b))
}

// put ends the use of a block, and returns the slabs to be freed.
func (c *Cache) put(b Block) list {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := b.piece
	if p == nil || p.uses != b.use {
		panic("sizeclass: a block was given back twice, or never taken")
	}
	if w := p.slab.watch; w != nil {
		w.Keep(b.Ptr, b.Size)
	}
	p.uses++
	c.stats.Live -= b.Size
	if p.slab.live--; p.slab.live == 0 {
		c.makeIdle(p)
	} else {
		c.free[p.class].push(p)
	}
	c.wake()
	return c.excess()
}

// makeIdle makes a slab idle of which this piece was the last in use. Nothing is cut
// from it any more, so all of it can be cut anew.
func (c *Cache) makeIdle(last *piece) {
	s := last.slab
	for _, p := range s.pieces[:s.count] {
		if p != last {
			c.free[p.class].remove(p)
		}
	}
	for i := range c.open {
		if c.open[i] == s {
			c.open[i] = nil
		}
	}
	s.count, s.cut, s.epoch = 0, 0, c.epoch
	c.wholes[s.whole.class].push(&s.whole)
	c.idle += sizeOf(s.whole.class)
}

// cached finds or cuts a piece for a block of this class.
func (c *Cache) cached(class int) *piece {
	if class >= smallClasses { // up to twice as large
		for larger := class; larger <= min(class+perDoubling, classes-1); larger++ {
			if p := c.wholes[larger].last; p != nil {
				return c.takeIdle(p)
			}
		}
		return nil
	}
	if p := c.free[class].last; p != nil {
		c.free[class].remove(p)
		return p
	}
	tier := tierOf(class)
	if c.open[tier].hasRoom(class) {
		return c.open[tier].cutOff(class)
	}
	largest, _ := classOf(tiers[tier].slab)
	for ; largest >= class; largest-- {
		if p := c.wholes[largest].last; p != nil {
			return c.cut(c.takeIdle(p).slab, class)
		}
	}
	return nil
}

// takeIdle takes an idle slab off its list.
func (c *Cache) takeIdle(whole *piece) *piece {
	c.wholes[whole.class].remove(whole)
	c.idle -= sizeOf(whole.class)
	return whole
}

// cut returns a piece of a slab of which nothing is in use, or the whole if it is of this
// class or a large one.
func (c *Cache) cut(s *slab, class int) *piece {
	if s.whole.class == class {
		return &s.whole
	}
	c.open[tierOf(class)] = s // the rest of the one before is unused until it is idle
	return s.cutOff(class)
}

// use makes a piece a block in use.
func (c *Cache) use(p *piece) Block {
	p.uses++
	p.slab.live++
	size := sizeOf(p.class)
	if w := p.slab.watch; w != nil {
		w.HandOut(p.ptr, size)
	}
	c.stats.Live += size
	c.stats.Peak = max(c.stats.Peak, c.stats.Live)
	return Block{p.ptr, size, p, p.uses}
}

// fetch allocates a block from the source, or a slab that it is cut from. Other callers that need a
// slab of that tier wait meanwhile, and share it.
func (c *Cache) fetch(ctx context.Context, class int) (Block, error) {
	c.stats.Misses++
	size := slabSize(class, min(c.limits.Total-c.stats.Held, max(c.limits.Idle/4, smallestSlab)))
	c.stats.Held += size // before the lock is released: others must see it
	var filling *bool
	if size > sizeOf(class) {
		filling = &c.filling[tierOf(class)]
		*filling = true
	}
	p, err := c.ask(ctx, size)
	if filling != nil {
		*filling = false
	}
	c.wake()
	if err != nil {
		c.stats.Held -= size
		return Block{}, err
	}
	whole, _ := classOf(size)
	return c.use(c.cut(newSlab(p, whole, c.watcher(p)), class)), nil
}

// watcher returns the watcher of memory of the source, or nil.
func (c *Cache) watcher(p device.Ptr) Watcher {
	if s, ok := c.source.(interface{ Watcher(device.Ptr) Watcher }); ok {
		return s.Watcher(p)
	}
	return nil
}

func (c *Cache) ask(ctx context.Context, size int64) (device.Ptr, error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.source.Allocate(ctx, size)
}

// makeRoom frees idle memory until size bytes fit.
func (c *Cache) makeRoom(size int64) error {
	keep := c.limits.Total - c.used() - size
	if keep < 0 {
		return fmt.Errorf("%w: %d bytes of %d are held", ErrLimit, c.stats.Held, c.limits.Total)
	}
	if dropped := c.shrink(keep); dropped.first != nil {
		go c.release(dropped) // which may take longer than ctx lasts
	}
	return nil
}

// untilChanged waits until memory is returned, freed or allocated.
func (c *Cache) untilChanged(ctx context.Context) error {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	changed := c.changed
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s memory: %w", c.source.ID(), ctx.Err())
	}
}

// wake ends all calls of untilChanged.
func (c *Cache) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Stats returns the memory that is held and used now.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Idle = c.idle
	return s
}
