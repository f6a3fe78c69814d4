package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/keep"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Memory is one allocation: of the pool, in stream order, a block of a cache, or memory that ends by
// a call of the driver that waits for the GPU.
type Memory struct {
	heap  *Heap
	kind  device.MemoryKind
	use   *usage
	ptr   device.Ptr
	size  int64
	block sizeclass.Block        // of a cache
	drop  func(device.Ptr) error // that call; nil for other memory
	// foreign is memory of another process.
	foreign bool
	after   func() // is called when the driver has dropped the memory; or nil
	freed   atomic.Bool
}

// Ptr returns the address.
func (m *Memory) Ptr() device.Ptr { return m.ptr }

// Size returns the number of bytes that were asked for.
func (m *Memory) Size() int64 { return m.size }

// ID returns the ID of the memory.
func (m *Memory) ID() device.ID { return m.heap.ID(m.kind) }

func isOutOfMemory(err error) bool {
	return errors.Is(err, cuda.OutOfMemory) || errors.Is(err, sizeclass.ErrLimit)
}

// cache is where memory of this kind comes from; nil: from the pool.
func (m *Memory) cache() *sizeclass.Cache { return m.heap.caches[purposeOf(m.kind)] }

func (m *Memory) take(ctx context.Context, of *GPU, stream uintptr) (err error) {
	if m.kind == device.ShareableMemory {
		m.drop = m.heap.ctx.FreeMemory
		m.ptr, err = m.heap.ctx.NewMemory(m.size)
		return err
	}
	cache := m.cache()
	if cache == nil {
		return waitingFor(ctx).enqueue(&of.Backlog, stream, callCost, func() error {
			m.ptr, err = of.Ctx.NewPoolMemory(m.heap.pool, m.size, stream)
			return err
		})
	}
	if m.size > sizeclass.MaxSize {
		return fmt.Errorf("cuda: allocate %d bytes on %s: more than can be addressed: %w", m.size, m.ID(), cuda.PublicCode(cuda.OutOfMemory))
	}
	if err := m.heap.ctx.Err(); err != nil {
		return err
	}
	var cached bool
	if m.block, cached = cache.TryTake(m.size); !cached {
		m.heap.deferred.sweep() // some of the pending frees may be done by now
		if m.block, err = cache.Take(ctx, m.size); err != nil {
			return err
		}
	}
	m.ptr = m.block.Ptr
	return nil
}

// Free ends the memory after the work on a stream of the GPU whose events they are. If the stream cannot be
// used, refused is the reason, and Free returns it. After an error the memory ends after all work of that GPU.
func (m *Memory) Free(events *Events, stream uintptr, refused error) error {
	if m.freed.Swap(true) {
		return m.errFreedTwice()
	}
	if m.size == 0 {
		return nil
	}
	if refused == nil && events.mayUse(stream) {
		if refused = m.freeOn(events, stream); refused == nil {
			return nil
		}
	}
	events.deferred.add(m.deferral(nil))
	return refused
}

// freeOn ends the memory after the work on a stream. Stream-ordered memory is freed as work on it; all
// other memory is freed when an event is complete that is recorded on it.
func (m *Memory) freeOn(events *Events, stream uintptr) error {
	if m.drop == nil && m.cache() == nil {
		err := admission{}.enqueue(events.backlog, stream, callCost, func() error { return events.ctx.FreePoolMemory(m.ptr, stream) })
		if err != nil {
			return err
		}
		m.ended()
		return nil
	}
	done, err := events.record(stream)
	if err != nil {
		return err
	}
	return m.endAfter(done)
}

// FreeAfter ends the memory once there is evidence that its work is done; nil: now, because no pending work
// uses it. If there is no evidence, refused is the reason, and FreeAfter returns it.
func (m *Memory) FreeAfter(after Evidence, refused error) error {
	if m.freed.Swap(true) {
		if after != nil && refused == nil {
			after.letGo()
		}
		return m.errFreedTwice()
	}
	switch {
	case m.size == 0:
		if after != nil && refused == nil {
			after.letGo()
		}
		return nil
	case refused != nil:
		m.heap.deferred.add(m.deferral(nil))
		return fmt.Errorf("cuda: free memory of %s after an event: %w", m.ID(), refused)
	}
	return m.endAfter(after)
}

func (m *Memory) errFreedTwice() error {
	return fmt.Errorf("cuda: %d bytes of %s memory at %#x: freed twice", m.size, m.ID(), uintptr(m.ptr))
}

// endAfter ends the memory now, if there is evidence that no work uses it, or later.
func (m *Memory) endAfter(after Evidence) error {
	m.heap.ctx.GiveBack(m.key())
	if after != nil {
		if done, err := after.reached(m.key()); !done || err != nil {
			m.heap.deferred.add(m.deferral(after))
			return nil
		}
		after.letGo()
	}
	err := m.end()
	if err != nil {
		m.heap.deferred.add(m.deferral(nil))
	}
	return err
}

func (m *Memory) deferral(after Evidence) *Deferral {
	return &Deferral{after: after, key: m.key(), bytes: m.waits(), end: m.end}
}

func (m *Memory) key() keep.Key { return keep.Key(m.ptr) }

// Watcher is told from now on which parts of the memory are in use, unless it is nil. None of them is in the rest of
// the block, of a cache that had no smaller one.
func (m *Memory) Watcher() sizeclass.Watcher {
	w := m.heap.watcher()
	if rest := m.block.Size - m.size; w != nil && rest > 0 {
		w.Keep(m.ptr+device.Ptr(m.size), rest)
	}
	return w
}

// waits is how many bytes the GPU or the host gets back: none of memory that is only registered, or another process's.
func (m *Memory) waits() int64 {
	if m.foreign || m.use == &m.heap.registered { // mutant: never
		return 0
	}
	return m.size
}

// end frees memory that no work uses any more: on a stream that nothing holds up, to its cache, or, as
// the driver waits for the GPU, once that has no work.
func (m *Memory) end() error {
	switch cache := m.cache(); {
	case m.drop != nil:
		m.heap.ctx.FreeLater(m.ptr) // mutant: deleted
		m.heap.deferred.add(&Deferral{idle: true, since: time.Now(), key: m.key(), bytes: m.waits(), end: m.endIdle})
		return nil
	case cache != nil:
		cache.Give(m.block)
	case m.heap.ctx.Err() == nil: // memory of a pool ends with its context
		if err := m.heap.ctx.FreePoolMemoryFor(m.ptr, m.heap.background); err != nil {
			return err
		}
	}
	m.ended()
	return nil
}

// endIdle ends memory with a call of the driver that waits for the GPU, which is idle.
func (m *Memory) endIdle() error {
	m.publish()
	if m.heap.ctx.Err() == nil { // otherwise it ended with its context
		if err := m.drop(m.ptr); err != nil {
			return err
		}
	}
	m.ended()
	return nil
}

// publish tells a simulated driver that the program learns, by the function that is called when the memory has
// ended, that the work is done.
func (m *Memory) publish() {
	if m.after != nil && m.heap.ctx.Watched() {
		m.heap.ctx.Driver().Publish(m.key())
	}
}

func (m *Memory) ended() {
	if m.use == &m.heap.registered {
		m.heap.locked.remove(m.ptr) // mutant: deleted
	}
	m.use.sub(m.size)
	m.heap.trimmer.keep(m.heap)
	if m.after != nil {
		m.heap.deferred.call(m.after)
	}
}
