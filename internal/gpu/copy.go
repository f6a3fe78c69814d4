package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Work on a stream of one GPU with memory of another one. A GPU does not reach memory
// of another one's pools unless it was given access, even after cuCtxEnablePeerAccess:
// cuMemcpyAsync refuses it (CUDA_ERROR_INVALID_VALUE), and cuMemcpyPeerAsync does not.

// Defer ends an item after all work already enqueued on the GPU, and on the other GPUs of the driver that
// are open: a copy on one of them may read memory of this GPU.
func (g *GPU) Defer(one *Deferral) {
	others := g.Platform.others(g)
	one.elsewhere.Store(int32(len(others)))
	g.Deferred.add(one)
	for _, other := range others {
		other.Deferred.add(&Deferral{key: one.key, end: func() error {
			g.Deferred.finish(one, nil)
			return nil
		}})
	}
}

// route is how a range is copied on a stream of a GPU. The zero value: as it is.
type route struct {
	to, from *GPU // memory of GPUs at both ends, not only of the stream's
	by       *GPU // memory of this GPU and of the host: it copies itself
}

// Copy enqueues all ranges on a stream of g; their ends may be memory of any GPU that is open.
func (g *GPU) Copy(ranges []device.Range, stream uintptr) error {
	return g.copy(admission{}, ranges, stream)
}

// CopyContext is Copy that waits until the stream has room. After an error, some of the copies may be enqueued. The driver copies
// from page-locked to page-locked memory within the call, after the work on the stream, which is waited for here.
func (g *GPU) CopyContext(ctx context.Context, ranges []device.Range, stream uintptr) error {
	if g.Platform.locked.haveBothEnds(ranges) {
		if err := g.await(ctx, stream); err != nil {
			return fmt.Errorf("cuda: copy on %s: %w", g.Ctx, err)
		}
	}
	return g.copy(waitingFor(ctx), ranges, stream)
}

// await waits for the work on a stream, unless the stream captures it.
func (g *GPU) await(ctx context.Context, stream uintptr) error {
	if busy, err := g.Ctx.Capturing([]uintptr{stream}); busy || err != nil {
		return nil
	}
	before, err := g.Events.recordBy(waitingFor(ctx), stream)
	if err != nil {
		return err
	}
	return before.await(ctx)
}

func (g *GPU) copy(admit admission, ranges []device.Range, stream uintptr) error {
	if !g.Platform.several.Load() {
		return g.copyReached(admit, ranges, stream)
	}
	return g.copyAcross(admit, ranges, stream)
}

// copyReached enqueues ranges whose ends g reaches.
func (g *GPU) copyReached(admit admission, ranges []device.Range, stream uintptr) error {
	return admit.copies(&g.Backlog, ranges, stream, func(piece []device.Range) error { return g.Ctx.Copy(piece, stream) })
}

// Record makes the event complete once all work on a stream of g so far is done.
func (g *GPU) Record(event, stream uintptr) error {
	return admission{}.enqueue(&g.Backlog, stream, callCost, func() error { return g.Ctx.Record(event, stream) })
}

// WaitEvent makes later work on a stream of g wait for the latest record of an event.
func (g *GPU) WaitEvent(stream, event uintptr) error {
	return admission{}.enqueue(&g.Backlog, stream, callCost, func() error { return g.Ctx.WaitEvent(stream, event) })
}

// Prefetch enqueues on a stream of g the moving of managed memory to the device with this ordinal.
func (g *GPU) Prefetch(p device.Ptr, size int64, ordinal int, stream uintptr) error {
	return admission{}.enqueue(&g.Backlog, stream, callCost, func() error { return g.Ctx.Prefetch(p, size, ordinal, stream) })
}

// Memset enqueues on a stream of g the filling of memory of a GPU with value.
func (g *GPU) Memset(of *GPU, p device.Ptr, value byte, size int64, stream uintptr) error {
	if of == g {
		return admission{}.enqueue(&g.Backlog, stream, callCost, func() error { return g.Ctx.Memset(p, value, size, stream) })
	}
	return g.detour(of, stream, func(stream uintptr) error { return of.Memset(of, p, value, size, stream) })
}

// copyAcross enqueues all ranges on a stream of g; their ends may be memory of any GPU.
func (g *GPU) copyAcross(admit admission, ranges []device.Range, stream uintptr) error {
	ends, err := g.Ctx.FindEnds(ranges)
	if err != nil {
		return err
	}
	for len(ranges) > 0 {
		n, r := 1, g.route(ends[0])
		for n < len(ranges) && g.route(ends[n]) == r {
			n++
		}
		if err := g.copyBy(admit, r, ranges[:n], stream); err != nil {
			return err
		}
		ranges, ends = ranges[n:], ends[n:]
	}
	return nil
}

func (g *GPU) copyBy(admit admission, r route, ranges []device.Range, stream uintptr) error {
	switch {
	case r.by != nil:
		return g.detour(r.by, stream, func(stream uintptr) error { return r.by.copyReached(admit, ranges, stream) })
	case r.to != nil:
		return admit.copies(&g.Backlog, ranges, stream, func(piece []device.Range) error {
			return g.Ctx.CopyPeer(r.to.Ctx, r.from.Ctx, piece, stream)
		})
	}
	return g.copyReached(admit, ranges, stream)
}

// route returns the route of a range with these ends. A GPU that is not open has no context to
// name: the driver chooses the route.
func (g *GPU) route(ends cuda.Ends) route {
	to, from := g.Platform.owner(ends.Dst), g.Platform.owner(ends.Src)
	switch {
	case (to == nil || to == g) && (from == nil || from == g):
		return route{}
	case to != nil && from != nil:
		return route{to: to, from: from}
	case to != nil:
		return route{by: to}
	}
	return route{by: from}
}

// detour enqueues work of the other GPU on a stream made for it, after all work on g's stream so
// far and before all later work on it. If the driver refuses the latter, detour waits: the caller
// may free memory that the work uses on its own stream.
func (g *GPU) detour(other *GPU, stream uintptr, work func(stream uintptr) error) error {
	aside, err := other.Ctx.NewStream(0)
	if err != nil {
		return err
	}
	if err = follow(g, stream, other, aside); err == nil {
		err = work(aside)
		if failed := follow(other, aside, g, stream); failed != nil { // part of the work may be enqueued
			err = errors.Join(err, failed, other.Ctx.SynchronizeStream(aside))
		}
	}
	if other.Streams.destroy(aside) != nil { // the work on it completes all the same
		other.Deferred.later(func() error { return other.Ctx.FreeStream(aside) })
	}
	return err
}

// follow makes a stream wait for the work on a stream of another GPU.
func follow(first *GPU, before uintptr, second *GPU, after uintptr) error {
	event, err := first.Events.record(before)
	if err != nil {
		return err
	}
	err = second.WaitEvent(after, event.word)
	event.letGo()
	return err
}
