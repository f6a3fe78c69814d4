package cudaalloc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Allocate returns owned memory of this kind, of size bytes. Stream-ordered device
// memory may be used by work on s from now on, and by other streams after an event
// of s; a nil stream is the legacy default stream. All other memory may be used at once,
// page-locked and managed memory also by the CPU; it comes from a cache, see [Limits].
//
// Where the driver has no memory left, cached memory is given back to it, and
// Allocate waits for memory that was freed and that pending work may still use: until ctx is
// done, or for two seconds in which nothing is freed. The error then wraps [OutOfMemory].
// Allocate waits in the same way where more than [Limits.Waiting] bytes wait to be freed.
func (d *Device) Allocate(ctx context.Context, size int64, s device.Stream) (device.Memory, error) {
	if err := d.mayAllocate(ctx, size); err != nil {
		return nil, err
	}
	of, stream, err := d.on(s)
	if err != nil {
		return nil, err
	}
	if err := d.pushBack(ctx, size); err != nil {
		return nil, err
	}
	m := &memory{dev: d, use: &d.usage[d.purpose()], size: size}
	if size == 0 {
		return m, nil
	}
	err = m.take(ctx, of, stream)
	if isOutOfMemory(err) {
		err = d.reclaim(ctx, size, err, func() error { return m.take(ctx, of, stream) })
	}
	if err != nil {
		return nil, err
	}
	m.use.add(size)
	return m, nil
}

// AllocateHost returns owned page-locked memory from the cache of the GPU: Allocate of
// [Device.Pinned], without a stream.
func (d *Device) AllocateHost(ctx context.Context, size int64) (device.Memory, error) {
	return d.host.Allocate(ctx, size, nil)
}

func (d *Device) mayAllocate(ctx context.Context, size int64) error {
	if size < 0 {
		return fmt.Errorf("cuda: allocate %d bytes on %s: negative size", size, d.ID())
	}
	if err := checkContext("allocate", ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cuda: allocate %d bytes on %s: %w", size, d.ID(), err)
	}
	return nil
}

func isOutOfMemory(err error) bool {
	return errors.Is(err, OutOfMemory) || errors.Is(err, sizeclass.ErrLimit)
}

// memory is one allocation: of the pool, in stream order, a block of a cache, or memory that ends by
// a call of the driver that waits for the GPU.
type memory struct {
	dev   *Device
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

func (m *memory) Ptr() device.Ptr { return m.ptr }
func (m *memory) Size() int64     { return m.size }

// cache is where memory of this kind comes from; nil: from the pool.
func (d *Device) cache() *sizeclass.Cache { return d.caches[d.purpose()] }

func (m *memory) take(ctx context.Context, of *cuda.Context, stream uintptr) (err error) {
	if m.dev.apart {
		m.drop = m.dev.ctx.FreeMemory
		m.ptr, err = m.dev.ctx.NewMemory(m.size)
		return err
	}
	cache := m.dev.cache()
	if cache == nil {
		m.ptr, err = of.NewPoolMemory(m.dev.pool, m.size, stream)
		return err
	}
	if m.size > sizeclass.MaxSize {
		return fmt.Errorf("cuda: allocate %d bytes on %s: more than can be addressed: %w", m.size, m.dev.ID(), OutOfMemory)
	}
	if err := m.dev.ctx.Err(); err != nil {
		return err
	}
	var cached bool
	if m.block, cached = cache.TryTake(m.size); !cached {
		m.dev.deferred.sweep(m.dev.gpu) // some of the pending frees may be done by now
		if m.block, err = cache.Take(ctx, m.size); err != nil {
			return err
		}
	}
	m.ptr = m.block.Ptr
	return nil
}

// Free ends the memory after the work on s. Stream-ordered memory is freed as work on s. All
// other memory goes back to its cache when an event is complete that is recorded on s.
//
// Where the driver fails, the error is returned, and the memory is freed after all work
// that the GPU has now.
func (m *memory) Free(s device.Stream) error {
	if m.freed.Swap(true) {
		return m.errFreedTwice()
	}
	if m.size == 0 {
		m.callAfter()
		return nil
	}
	gpu := m.dev.gpuOf(s)
	_, stream, err := m.dev.on(s)
	if err == nil && gpu.mayUse(stream) {
		if err = m.freeOn(gpu, stream); err == nil {
			return nil
		}
	}
	gpu.deferred.add(gpu, m.deferral(nil))
	return err
}

// freeOn ends the memory after the work on a stream of a GPU.
func (m *memory) freeOn(gpu *gpu, stream uintptr) error {
	if m.drop == nil && m.dev.cache() == nil {
		if err := gpu.ctx.FreePoolMemory(m.ptr, stream); err != nil {
			return err
		}
		m.ended()
		return nil
	}
	done, err := record(gpu, stream)
	if err != nil {
		return err
	}
	return m.endAfter(done)
}

// mayUse reports whether work may be enqueued on the stream: not on the legacy default
// stream while a stream is being captured that is ordered with it, since that invalidates
// the capture.
func (g *gpu) mayUse(stream uintptr) bool {
	if stream != 0 && stream != cuda.LegacyStream {
		return true
	}
	busy, err := g.ctx.Capturing(nil)
	return !busy && !isCapture(err)
}

// FreeAfter ends the memory once e is complete; nil: now, because no pending work uses it.
func (m *memory) FreeAfter(e device.Event) error {
	if m.freed.Swap(true) {
		return m.errFreedTwice()
	}
	if m.size == 0 {
		m.callAfter()
		return nil
	}
	if e == nil {
		return m.endAfter(nil)
	}
	own, err := await(e)
	if err != nil {
		m.dev.deferred.add(m.dev.gpu, m.deferral(nil))
		return fmt.Errorf("cuda: free memory of %s after an event: %w", m.dev.ID(), err)
	}
	return m.endAfter(own)
}

func (m *memory) errFreedTwice() error {
	return fmt.Errorf("cuda: %d bytes of %s memory at %#x: freed twice", m.size, m.dev.ID(), uintptr(m.ptr))
}

// endAfter ends the memory now, if there is evidence that no work uses it, or later.
func (m *memory) endAfter(after evidence) error {
	m.dev.ctx.GiveBack(m.key())
	if after != nil {
		if done, err := after.reached(m.key()); !done || err != nil {
			m.dev.deferred.add(m.dev.gpu, m.deferral(after))
			return nil
		}
		after.letGo()
	}
	err := m.end()
	if err != nil {
		m.dev.deferred.add(m.dev.gpu, m.deferral(nil))
	}
	return err
}

func (m *memory) deferral(after evidence) *deferral {
	return &deferral{after: after, key: m.key(), bytes: m.waits(), end: m.end}
}

func (m *memory) key() cuda.Key { return cuda.Key(m.ptr) }

// Watcher is told which parts of the memory are in use; nil if nobody wants to know.
func (m *memory) Watcher() sizeclass.Watcher { return m.dev.watcher() }

// waits is how many bytes the GPU or the host gets back: none of memory that is only registered, or another process's.
func (m *memory) waits() int64 {
	if m.foreign || m.use == &m.dev.registered {
		return 0
	}
	return m.size
}

// end frees memory that no work uses any more: on a stream that nothing holds up, to its cache, or, as
// the driver waits for the GPU, once that has no work.
func (m *memory) end() error {
	m.publish()
	switch cache := m.dev.cache(); {
	case m.drop != nil:
		m.dev.deferred.add(m.dev.gpu, &deferral{key: m.key(), bytes: m.waits(), end: m.endIdle})
		return nil
	case cache != nil:
		cache.Give(m.block)
	case m.dev.ctx.Err() == nil: // memory of a pool ends with its context
		if err := m.dev.ctx.FreePoolMemoryFor(m.ptr, m.dev.background); err != nil {
			return err
		}
	}
	m.ended()
	return nil
}

// endIdle ends memory with a call of the driver that waits for the GPU, which is idle.
func (m *memory) endIdle() error {
	m.publish()
	if m.dev.ctx.Err() == nil { // otherwise it ended with its context
		if err := m.drop(m.ptr); err != nil {
			return err
		}
	}
	m.ended()
	return nil
}

// publish tells a simulated driver that the program learns, by the function that is called when the memory has
// ended, that the work is done.
func (m *memory) publish() {
	if m.after != nil && m.dev.ctx.Watched() {
		m.dev.ctx.Driver().Publish(m.key())
	}
}

func (m *memory) ended() {
	if m.use == &m.dev.registered {
		m.dev.platform.locked.remove(m.ptr)
	}
	m.use.sub(m.size)
	m.dev.trimmer.keep(m.dev.gpu)
	m.callAfter()
}

func (m *memory) callAfter() {
	if m.after != nil {
		m.dev.deferred.call(m.dev.gpu, m.after)
	}
}
