package cudaalloc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// PageLocked says whether this package page-locked or registered the memory, for
// whichever GPU of the driver, or allocated it as managed memory.
func (d *Device) PageLocked(p device.Ptr, size int64) bool {
	return d.platform.locked.contain(p, size)
}

// CopyStream returns a stream that is not ordered with others, to be closed.
func (d *Device) CopyStream() (device.Stream, error) { return d.NewStream() }

// Upload enqueues copies from host memory on s. Memory that is not page-locked goes
// through page-locked staging memory, which is filled before Upload returns: ranges that
// are neighbours at their destination are one copy, of up to 16 MiB. Where 64 MiB are
// staged and not copied yet, Upload waits for the oldest.
//
// The event that it returns is owned by the caller and complete when the copies are. It is
// also what the staging memory waits for, so it must not be recorded again.
func (d *Device) Upload(ctx context.Context, list []device.Range, s device.Stream) (device.Event, error) {
	of, stream, err := d.on(s)
	if err != nil {
		return nil, err
	}
	var direct, staged []device.Range
	for i, r := range list {
		switch {
		case r.Size < 0:
			err = fmt.Errorf("cuda: upload to %s: ranges[%d].Size = %d: negative size", d.ID(), i, r.Size)
		case r.Size == 0:
		case d.PageLocked(r.Src, r.Size):
			direct = append(direct, r)
		default:
			staged = append(staged, r)
		}
	}
	if err != nil {
		return nil, err
	}
	gpu := d.gpuOf(s) // events are recorded in the context of their stream
	if gpu != d.gpu && d.kind == device.CUDA {
		return d.uploadAcross(ctx, gpu, direct, staged, stream)
	}
	if err := of.Copy(direct, stream); err != nil {
		return nil, err
	}
	done, err := gpu.staging.copy(ctx, gpu, staged, stream)
	if err != nil {
		return nil, err
	}
	return done.event(), nil
}

// uploadAcross is Upload on a stream of another GPU, which need not reach d's memory.
func (d *Device) uploadAcross(ctx context.Context, gpu *gpu, direct, staged []device.Range, stream uintptr) (device.Event, error) {
	var done *sharedEvent
	err := gpu.detour(d.gpu, stream, func(own uintptr) (err error) {
		if err = d.ctx.Copy(direct, own); err == nil {
			done, err = d.staging.copy(ctx, d.gpu, staged, own)
		}
		return err
	})
	switch {
	case done == nil:
		return nil, err
	case err != nil:
		return nil, errors.Join(err, done.event().Close())
	}
	return done.event(), nil
}

// AllocateHost returns page-locked memory from a cache of the device. It is given
// back to the cache when it is freed: no copy from or to it may be under way then.
func (d *Device) AllocateHost(ctx context.Context, size int64) (device.Memory, error) {
	if size < 0 {
		return nil, fmt.Errorf("cuda: allocate %d bytes for %s: negative size", size, d.ID())
	}
	b, err := d.cache.TryAllocate(int(size))
	if err != nil {
		return nil, err
	}
	return &cached{cache: d.cache, bytes: b}, nil
}

// cached is page-locked memory of a cache.
type cached struct {
	cache *sizeclass.Allocator
	bytes []byte
	freed atomic.Bool
}

func (c *cached) Ptr() device.Ptr { return pointer(c.bytes) }
func (c *cached) Size() int64     { return int64(len(c.bytes)) }

func (c *cached) FreeAfter(device.Event) error { return c.Free(nil) }

func (c *cached) Free(device.Stream) error {
	if c.freed.Swap(true) {
		return errFreedTwice
	}
	c.cache.Free(c.bytes)
	return nil
}

const (
	stagingChunk = 16 << 20 // the most that is staged at once
	stagingLimit = 64 << 20 // the most that is staged and not copied yet
)

// staging is page-locked memory that copies of plain memory go through. It comes from
// the device's cache, and goes back when the copies out of it are done.
type staging struct {
	mu     sync.Mutex
	flight []staged // oldest first
	bytes  int64    // in flight
}

// staged is a chunk that copies are made out of until event.
type staged struct {
	memory device.Memory
	event  *sharedEvent
}

// copy copies all ranges to staging memory, and enqueues the copies out of it. It returns
// an event behind all of them, which the caller holds.
func (g *staging) copy(ctx context.Context, gpu *gpu, list []device.Range, stream uintptr) (*sharedEvent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(list) == 0 {
		return record(gpu, stream)
	}
	for {
		size := int64(0)
		for _, r := range list {
			size = min(size+r.Size, stagingChunk)
		}
		if err := g.room(gpu, size); err != nil {
			return nil, err
		}
		memory, err := gpu.own.AllocateHost(ctx, size)
		if err != nil {
			return nil, err
		}
		var copies []device.Range
		copies, list = stage(memory, list)
		event, err := g.send(gpu, memory, copies, stream)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			event.refs.Add(1) // the chunk cannot have landed: g is locked
			return event, nil
		}
	}
}

// record returns an event behind the work on the stream, which the caller holds.
func record(gpu *gpu, stream uintptr) (*sharedEvent, error) {
	event, err := gpu.share()
	if err != nil {
		return nil, err
	}
	if err := gpu.ctx.Record(event.word, stream); err != nil {
		gpu.reaper.later(gpu, func() error { return gpu.ctx.FreeEvent(event.word) })
		return nil, err
	}
	return event, nil
}

// room gives back what has been copied, and waits until there is room for size bytes
// more.
func (g *staging) room(gpu *gpu, size int64) error {
	for len(g.flight) > 0 {
		oldest := g.flight[0]
		if done, err := gpu.ctx.QueryEvent(oldest.event.word); err != nil {
			return err
		} else if !done {
			if g.bytes+size <= stagingLimit {
				return nil
			}
			if err := gpu.ctx.SynchronizeEvent(oldest.event.word); err != nil {
				return err
			}
		}
		g.flight = g.flight[1:]
		g.land(gpu, oldest)
	}
	return nil
}

// land gives a chunk back that has been copied.
func (g *staging) land(gpu *gpu, s staged) {
	g.bytes -= s.memory.Size()
	_ = s.memory.Free(nil)
	if s.event.drop() != nil {
		gpu.reaper.later(gpu, func() error { return gpu.ctx.FreeEvent(s.event.word) })
	}
}

// send enqueues the copies out of a chunk, and an event behind them, also when a copy
// failed: those before it are enqueued. It takes the chunk.
func (g *staging) send(gpu *gpu, memory device.Memory, copies []device.Range, stream uintptr) (*sharedEvent, error) {
	copied := gpu.ctx.Copy(copies, stream)
	event, err := record(gpu, stream)
	if err != nil {
		// Nothing but the end of all work tells when the chunk is free.
		gpu.reaper.later(gpu, func() error { return memory.Free(nil) })
		return nil, err
	}
	g.flight = append(g.flight, staged{memory, event})
	g.bytes += memory.Size()
	return event, copied
}

// stage copies from the ranges until the chunk is full. It returns the copies out of
// it, and what is left of the ranges, which it may change.
func stage(memory device.Memory, list []device.Range) (copies, rest []device.Range) {
	base := memory.Ptr()
	used := int64(0)
	for i := range list {
		r := &list[i]
		n := min(r.Size, memory.Size()-used)
		copy(hostBytes(base+device.Ptr(used), n), hostBytes(r.Src, n))
		if last := len(copies) - 1; last >= 0 && copies[last].Dst+device.Ptr(copies[last].Size) == r.Dst {
			copies[last].Size += n
		} else {
			copies = append(copies, device.Range{Dst: r.Dst, Src: base + device.Ptr(used), Size: n})
		}
		used += n
		if n < r.Size {
			*r = device.Range{Dst: r.Dst + device.Ptr(n), Src: r.Src + device.Ptr(n), Size: r.Size - n}
			return copies, list[i:]
		}
	}
	return copies, nil
}

func hostBytes(p device.Ptr, n int64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// trim gives back what has been copied. While something is being staged there is
// nothing to be had: it may be that which found no memory.
func (g *staging) trim(gpu *gpu) error {
	if !g.mu.TryLock() {
		return nil
	}
	defer g.mu.Unlock()
	return g.room(gpu, 0) // what is still copied stays
}
