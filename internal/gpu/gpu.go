package gpu

import (
	"context"
	"errors"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// GPU is an open GPU.
type GPU struct {
	Platform *Platform
	Ctx      *cuda.Context
	Name     string
	// Concurrent reports whether the host may touch managed memory while the GPU works.
	Concurrent bool
	// Coherent reports whether the GPU uses the page tables of the host: its work accesses all memory of the host.
	Coherent bool
	// Face is the GPU as package cudaalloc shows it.
	Face any

	Deferred     Deferred
	Synchronizer Synchronizer
	Backlog      Backlog
	Events       Events
	Streams      Streams
	Heap         Heap
	Staging      Staging
}

// Of returns the GPU of a device of package cudaalloc, which sets it.
var Of func(dev any) *GPU

func openGPU(p *Platform, ordinal int, made func(*GPU) error) (*GPU, error) {
	dev, err := p.Driver.Device(ordinal)
	if err != nil {
		return nil, err
	}
	name, err := dev.Name()
	if err != nil {
		return nil, err
	}
	pools, err := dev.Attribute(cuda.MemoryPoolsSupported)
	if err != nil && !errors.Is(err, cuda.InvalidValue) { // drivers that do not know the attribute
		return nil, err
	}
	concurrent, err := dev.Attribute(cuda.ConcurrentManagedAccess)
	if err != nil && !errors.Is(err, cuda.InvalidValue) {
		return nil, err
	}
	coherent, err := dev.Attribute(cuda.UsesHostPageTables)
	if err != nil && !errors.Is(err, cuda.InvalidValue) {
		return nil, err
	}
	ctx, err := dev.Context()
	if err != nil {
		return nil, err
	}
	g := &GPU{Platform: p, Ctx: ctx, Name: name, Concurrent: concurrent != 0, Coherent: concurrent != 0 && coherent != 0}
	background, err := ctx.NewStream(0)
	var pool cuda.Pool
	if err == nil && pools != 0 {
		pool, err = ctx.NewPool()
		if errors.Is(err, device.ErrNotSupported) {
			err = nil
		}
	}
	g.init(pool, background)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	for _, own := range []uintptr{ctx.Handle(), background, uintptr(pool)} {
		ctx.Keep(device.Ptr(own), 0)
	}
	if err := made(g); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	p.prober.opened(ctx)
	p.owners.Store(int32(ordinal), g)
	return g, nil
}

// init ties the parts together.
func (g *GPU) init(pool cuda.Pool, background uintptr) {
	d := &g.Deferred
	d.ctx, d.synchronize, d.reason, d.guard.device = g.Ctx, g.Synchronizer.synchronize, g.Synchronizer.lastReason, g.Ctx
	g.Backlog.ctx, g.Backlog.events = g.Ctx, &g.Events
	g.Events.ctx, g.Events.deferred, g.Events.backlog = g.Ctx, d, &g.Backlog
	g.Streams.ctx, g.Streams.deferred, g.Streams.events = g.Ctx, d, &g.Events
	y := &g.Synchronizer
	y.ctx, y.streams, y.gone, y.turn = g.Ctx, &g.Streams, g.Gone, make(chan struct{}, 1)
	g.Heap.init(g.Ctx, d, &g.Platform.locked, pool, background)
	s := &g.Staging
	s.ctx, s.deferred, s.events = g.Ctx, d, &g.Events
	s.host = func(ctx context.Context, m *Memory, size int64) error {
		return g.Heap.Allocate(ctx, m, device.PinnedMemory, size, g, 0)
	}
}

// Gone reports whether the context was reset. If the driver fails, it reports false.
func (g *GPU) Gone() bool {
	gone, err := g.Ctx.Gone(g.Heap.background)
	return err == nil && gone
}

// abandon frees the objects of a GPU that survive a reset: the reference to the primary
// context, and the pool, which belongs to the device. An object that the driver refuses twice is
// lost, and nothing else with it. No range counts as page-locked any more, which is slower for
// memory that other GPUs have page-locked, and never wrong.
func (g *GPU) abandon(now *GPU) {
	g.Platform.locked.clear()
	steps := []func() error{g.Ctx.Release}
	if g.Heap.pool != 0 {
		steps = append(steps, func() error { return now.Ctx.FreePool(g.Heap.pool) })
	}
	_ = twice(steps)
}

// Close undoes opening. A GPU that was opened is closed in tests only: handles of it may be anywhere in the
// process.
func (g *GPU) Close() error {
	g.Platform.prober.ended(g.Ctx)
	g.Platform.owners.CompareAndDelete(int32(g.Ctx.Ordinal()), g)
	var steps []func() error
	if g.Heap.pool != 0 {
		steps = append(steps, func() error { return g.Ctx.FreePool(g.Heap.pool) })
	}
	if g.Heap.background != 0 {
		steps = append(steps, func() error { return g.Ctx.FreeStream(g.Heap.background) })
	}
	return twice(append(steps, g.Ctx.Release))
}

// twice tries each step twice: a driver that fails once must not keep a context alive.
func twice(steps []func() error) (all error) {
	for _, step := range steps {
		if step() != nil {
			all = errors.Join(all, step())
		}
	}
	return all
}

// EnablePeerAccess lets work on this GPU read and write memory of peer.
func (g *GPU) EnablePeerAccess(peer *GPU) error {
	if err := g.Ctx.EnableAccess(peer.Ctx); err != nil {
		return err
	}
	if peer.Heap.pool == 0 {
		return nil
	}
	return peer.Ctx.PoolAccess(peer.Heap.pool, g.Ctx)
}
