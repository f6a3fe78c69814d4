package cudaalloc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/hostcache"
)

// PageLocked says whether this package page-locked or registered the memory, for
// whichever GPU of the driver, or allocated it as managed memory.
func (d *Device) PageLocked(p device.Ptr, size int64) bool {
	return d.platform.locked.contain(p, size)
}

// CopyStream is a stream of the device's own that is not ordered with others; it is
// borrowed.
func (d *Device) CopyStream() device.Stream { return d.borrow(d.background) }

// Upload enqueues copies from host memory on s. Memory that is not page-locked goes
// through page-locked staging buffers, which are filled before Upload returns: ranges
// that are neighbours at their destination are one copy as long as they fit into a
// buffer. Where more is staged than the buffers hold, Upload waits for one to be free.
func (d *Device) Upload(list []device.Range, s device.Stream) error {
	ctx, stream, err := d.on(s)
	if err != nil {
		return err
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
		return err
	}
	if err := ctx.Copy(direct, stream); err != nil {
		return err
	}
	gpu := d.gpu
	if own, ok := s.(*Stream); ok && own != nil {
		gpu = own.gpu // events are recorded in the context of their stream
	}
	return gpu.staging.copy(gpu, staged, stream)
}

// AllocateHost returns page-locked memory from a cache of the device. It is given
// back to the cache when it is freed: no copy from or to it may be under way then.
func (d *Device) AllocateHost(size int64) (device.Memory, error) {
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
	cache *hostcache.Allocator
	bytes []byte
	freed atomic.Bool
}

func (c *cached) Ptr() device.Ptr { return pointer(c.bytes) }
func (c *cached) Size() int64     { return int64(len(c.bytes)) }

func (c *cached) Free(device.Stream) error {
	if c.freed.Swap(true) {
		return errFreedTwice
	}
	c.cache.Free(c.bytes)
	return nil
}

const (
	stagingBuffers = 2
	stagingSize    = 16 << 20
)

// staging is page-locked memory that copies of plain memory go through, in turns.
type staging struct {
	mu      sync.Mutex
	buffers [stagingBuffers]stagingBuffer
	next    int
}

type stagingBuffer struct {
	memory device.Memory // nil until it is needed
	event  uintptr       // recorded behind the copies out of it; 0: never
	busy   bool          // since event was recorded
}

// copy copies all ranges to staging buffers, and enqueues the copies out of them.
func (g *staging) copy(gpu *gpu, list []device.Range, stream uintptr) error {
	if len(list) == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(list) > 0 {
		b := &g.buffers[g.next]
		g.next = (g.next + 1) % stagingBuffers
		if err := b.ready(gpu); err != nil {
			return err
		}
		copies, rest := b.fill(list)
		list = rest
		// Recorded also when a copy failed: those before it are enqueued.
		err := gpu.ctx.Copy(copies, stream)
		if recorded := gpu.ctx.Record(b.event, stream); recorded != nil {
			// Nobody can tell when the buffer will be free, but by waiting now.
			if waited := gpu.ctx.Synchronize(); waited != nil {
				b.memory = nil // never to be used again
			}
			return recorded
		}
		b.busy = true
		if err != nil {
			return err
		}
	}
	return nil
}

// ready waits until the buffer may be filled.
func (b *stagingBuffer) ready(gpu *gpu) (err error) {
	if b.memory == nil {
		if b.memory, err = gpu.host.Allocate(stagingSize, nil); err != nil {
			return err
		}
	}
	if b.event == 0 {
		if b.event, err = gpu.ctx.NewEvent(); err != nil {
			return err
		}
	}
	if b.busy {
		if err := gpu.ctx.SynchronizeEvent(b.event); err != nil {
			return err
		}
		b.busy = false
	}
	return nil
}

// fill copies from the ranges until the buffer is full. It returns the copies out of
// the buffer, and what is left of the ranges.
func (b *stagingBuffer) fill(list []device.Range) (copies, rest []device.Range) {
	base := b.memory.Ptr()
	used := int64(0)
	for i := range list {
		r := list[i]
		n := min(r.Size, stagingSize-used)
		copy(hostBytes(base+device.Ptr(used), n), hostBytes(r.Src, n))
		if last := len(copies) - 1; last >= 0 && copies[last].Dst+device.Ptr(copies[last].Size) == r.Dst {
			copies[last].Size += n
		} else {
			copies = append(copies, device.Range{Dst: r.Dst, Src: base + device.Ptr(used), Size: n})
		}
		used += n
		if n < r.Size {
			list[i] = device.Range{Dst: r.Dst + device.Ptr(n), Src: r.Src + device.Ptr(n), Size: r.Size - n}
			return copies, list[i:]
		}
	}
	return copies, nil
}

func hostBytes(p device.Ptr, n int64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// trim gives the buffers back. It waits for those that are busy.
func (g *staging) trim(gpu *gpu) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.buffers {
		b := &g.buffers[i]
		if b.memory != nil {
			_ = b.memory.Free(nil) // by the reaper, after the GPU's work
		}
		if event := b.event; event != 0 {
			gpu.reaper.later(gpu, func() error { return gpu.ctx.FreeEvent(event) })
		}
		*b = stagingBuffer{}
	}
}
