package cudaalloc

import (
	"errors"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Work on a stream of one GPU with memory of another one. A GPU does not reach memory
// of another one's pools unless it was given access, even after cuCtxEnablePeerAccess:
// cuMemcpyAsync refuses it (CUDA_ERROR_INVALID_VALUE), and cuMemcpyPeerAsync does not.

// route is how a range is copied on a stream of a GPU. The zero value: as it is.
type route struct {
	to, from *gpu // memory of GPUs at both ends, not only of the stream's
	by       *gpu // memory of this GPU and of the host: it copies itself
}

// copyAcross enqueues all ranges on a stream of g; their ends may be memory of any GPU.
func (g *gpu) copyAcross(ranges []device.Range, stream uintptr) error {
	ends, err := g.ctx.FindEnds(ranges)
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

func (g *gpu) copyBy(r route, ranges []device.Range, stream uintptr) error {
	switch {
	case r.by != nil:
		return g.detour(r.by, stream, func(stream uintptr) error { return r.by.ctx.Copy(ranges, stream) })
	case r.to != nil:
		return g.ctx.CopyPeer(r.to.ctx, r.from.ctx, ranges, stream)
	}
	return g.ctx.Copy(ranges, stream)
}

// route returns the route of a range with these ends. A GPU that is not open has no context to
// name: the driver chooses the route.
func (g *gpu) route(ends cuda.Ends) route {
	to, from := g.platform.owner(ends.Dst), g.platform.owner(ends.Src)
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

// owner is the open GPU with this ordinal, or nil.
func (p *platform) owner(ordinal int32) *gpu {
	g, _ := p.owners.Load(ordinal)
	owner, _ := g.(*gpu)
	return owner
}

// others are the other GPUs that are open. Each may copy from memory of g, and from page-locked memory.
func (p *platform) others(g *gpu) (list []*gpu) {
	if p.several.Load() {
		p.owners.Range(func(_, other any) bool {
			if other != g {
				list = append(list, other.(*gpu))
			}
			return true
		})
	}
	return list
}

// detour enqueues work of the other GPU on a stream made for it, after all work on g's stream so
// far and before all later work on it. If the driver refuses the latter, detour waits: the caller
// may free memory that the work uses on its own stream.
func (g *gpu) detour(other *gpu, stream uintptr, work func(stream uintptr) error) error {
	aside, err := other.ctx.NewStream(0)
	if err != nil {
		return err
	}
	if err = follow(g, stream, other, aside); err == nil {
		err = work(aside)
		if failed := follow(other, aside, g, stream); failed != nil { // part of the work may be enqueued
			err = errors.Join(err, failed, other.ctx.SynchronizeStream(aside))
		}
	}
	if other.ctx.FreeStream(aside) != nil { // the work on it completes all the same
		other.deferred.later(other, func() error { return other.ctx.FreeStream(aside) })
	}
	return err
}

// follow makes a stream wait for the work on a stream of another GPU.
func follow(first *gpu, before uintptr, second *gpu, after uintptr) error {
	event, err := record(first, before)
	if err != nil {
		return err
	}
	err = second.ctx.WaitEvent(after, event.word)
	event.letGo()
	return err
}
