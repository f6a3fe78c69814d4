package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// PageLocked reports whether this module page-locked or registered the memory, for
// any GPU of the driver, or allocated it as managed memory.
func (p *Platform) PageLocked(at device.Ptr, size int64) bool { return p.locked.contain(at, size) }

// Upload enqueues copies from host memory to memory of a kind of g on a stream of another GPU, or of g. apart reports that
// page-locked memory may be read at once. It returns an event behind the copies, which the caller holds.
func (g *GPU) Upload(ctx context.Context, kind device.MemoryKind, list []device.Range, of *GPU, stream uintptr, apart bool) (*SharedEvent, error) {
	direct, staged, err := g.sort(kind, list, apart)
	if err != nil {
		return nil, err
	}
	if kind == device.PinnedMemory {
		return of.copyByHost(ctx, append(direct, staged...), stream)
	}
	if of != g && kind != device.ManagedMemory {
		return g.uploadAcross(ctx, of, direct, staged, stream)
	}
	if err := of.copyReached(waitingFor(ctx), direct, stream); err != nil {
		return nil, err
	}
	return of.Staging.copy(ctx, staged, stream) // events are recorded in the context of their stream
}

// IsOf reports whether the event is one of the GPU.
func (e *SharedEvent) IsOf(g *GPU) bool { return e.events == &g.Events }

// leastDirect is the size from which a page-locked range is worth a copy of its own: a call of the
// driver, and a transfer, which take as long as the CPU takes to copy some 30 to 60 KiB.
const leastDirect = 64 << 10

// sort divides the ranges into those that the GPU reads itself, and those that are staged. apart
// reports that page-locked memory may be read at once.
func (g *GPU) sort(kind device.MemoryKind, list []device.Range, apart bool) (direct, staged []device.Range, err error) {
	locked := &g.Platform.locked
	locked.mu.RLock()
	defer locked.mu.RUnlock()
	staged = make([]device.Range, 0, len(list))
	var in span // the last one that was found: many ranges are in few
	for i, r := range list {
		known := r.Size > 0 && in.contains(r.Src, r.Size)
		if r.Size > 0 && !known {
			if s, ok := locked.at(r.Src, r.Size); ok {
				in, known = s, true
			}
		}
		switch {
		case r.Size < 0:
			return nil, nil, fmt.Errorf("cuda: upload to %s: ranges[%d].Size = %d: negative size", g.Heap.ID(kind), i, r.Size)
		case r.Size == 0:
		case r.Src < memcopy.FirstPage:
			return nil, nil, fmt.Errorf("cuda: upload to %s: ranges[%d].Src = %#x: memory that cannot be accessed", g.Heap.ID(kind), i, uintptr(r.Src))
		case kind == device.PinnedMemory && r.Dst < memcopy.FirstPage:
			return nil, nil, fmt.Errorf("cuda: upload to %s: ranges[%d].Dst = %#x: memory that cannot be accessed", g.Heap.ID(kind), i, uintptr(r.Dst))
		case !known || apart && !in.managed && r.Size < leastDirect:
			staged = append(staged, r)
		default:
			direct = appendDirect(direct, r)
		}
	}
	return direct, staged, nil
}

// appendDirect appends a range, or extends the last one.
func appendDirect(list []device.Range, r device.Range) []device.Range {
	if i := len(list) - 1; i >= 0 {
		last := &list[i]
		if last.Src+device.Ptr(last.Size) == r.Src && last.Dst+device.Ptr(last.Size) == r.Dst {
			last.Size += r.Size
			return list
		}
	}
	return append(list, r)
}

// uploadAcross is Upload on a stream of another GPU, which need not reach g's memory.
func (g *GPU) uploadAcross(ctx context.Context, of *GPU, direct, staged []device.Range, stream uintptr) (*SharedEvent, error) {
	var done *SharedEvent
	err := of.detour(g, stream, func(own uintptr) (err error) {
		if err = g.copyReached(waitingFor(ctx), direct, own); err == nil {
			done, err = g.Staging.copy(ctx, staged, own)
		}
		return err
	})
	switch {
	case done == nil:
		return nil, err
	case err != nil:
		var h Handle
		done.MoveTo(&h)
		return nil, errors.Join(err, h.Close())
	}
	return done, nil
}

// copyByHost copies between memory of the host, in its turn on the stream: the driver would
// do the same inside the call, and would not return when ctx ends.
func (g *GPU) copyByHost(ctx context.Context, list []device.Range, stream uintptr) (*SharedEvent, error) {
	before, err := g.Events.recordBy(waitingFor(ctx), stream)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return before, nil
	}
	if err := before.await(ctx); err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: %w", g.Ctx, err)
	}
	// A reset of the primary context unmaps the destination.
	err = memcopy.Guard(func() error {
		for _, r := range list {
			if err := memcopy.Copy(uintptr(r.Dst), uintptr(r.Src), r.Size, ctx.Err); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: %w", g.Ctx, err)
	}
	return g.Events.record(stream)
}
