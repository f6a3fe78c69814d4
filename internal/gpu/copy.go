package gpu

import (
	"errors"

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
	if !g.Platform.several.Load() {
		return g.Ctx.Copy(ranges, stream)
	}
	return g.copyAcross(ranges, stream)
}

// Memset enqueues on a stream of g the filling of memory of a GPU with value.
func (g *GPU) Memset(of *GPU, p device.Ptr, value byte, size int64, stream uintptr) error {
	if of == g {
		return g.Ctx.Memset(p, value, size, stream)
	}
	return g.detour(of, stream, func(stream uintptr) error { return of.Ctx.Memset(p, value, size, stream) })
}

// copyAcross enqueues all ranges on a stream of g; their ends may be memory of any GPU.
func (g *GPU) copyAcross(ranges []device.Range, stream uintptr) error {
	ends, err := g.Ctx.FindEnds(ranges)
	if err != nil {
		return err
	}
	for len(ranges) > 0 {
		n, r := 1, g.route(ends[0])
		for n < len(ranges) && g.route(ends[n]) == r {
			n++
		}
		if err := g.copyBy(r, ranges[:n], stream); err != nil {
			return err
		}
		ranges, ends = ranges[n:], ends[n:]
	}
	return nil
}

func (g *GPU) copyBy(r route, ranges []device.Range, stream uintptr) error {
	switch {
	case r.by != nil:
		return g.detour(r.by, stream, func(stream uintptr) error { return r.by.Ctx.Copy(ranges, stream) })
	case r.to != nil:
		return g.Ctx.CopyPeer(r.to.Ctx, r.from.Ctx, ranges, stream)
	}
	return g.Ctx.Copy(ranges, stream)
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
	if other.Ctx.FreeStream(aside) != nil { // the work on it completes all the same
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
	err = second.Ctx.WaitEvent(after, event.word)
	event.letGo()
	return err
}
