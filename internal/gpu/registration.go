package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Register page-locks existing host memory until [GPU.Unregister]; the memory must
// stay mapped until then. readOnly is for memory that must not be written.
func (h *Heap) Register(p device.Ptr, size int64, readOnly bool) error {
	if err := h.ctx.Register(p, size, readOnly); err != nil {
		return err
	}
	h.locked.add(p, size, false)
	return nil
}

// Unregister undoes [Heap.Register], after all work already enqueued on the GPU and on the other GPUs
// that are open, for which the memory is page-locked, too. Where ctx ends that wait, or the driver
// fails, the memory stays registered.
func (g *GPU) Unregister(ctx context.Context, p device.Ptr) error {
	for _, g := range append(g.Platform.others(g), g) {
		if err := g.Deferred.idle(ctx); err != nil {
			return err
		}
	}
	if err := g.Ctx.Unregister(p); err != nil {
		return err
	}
	g.Heap.locked.remove(p)
	return nil
}

// RegisterMemory is [Heap.Register] for memory that ends as any other. after, unless it is nil, is called once
// the driver has unregistered it.
func (h *Heap) RegisterMemory(m *Memory, p device.Ptr, size int64, readOnly bool, after func()) error {
	if err := h.Register(p, size, readOnly); err != nil {
		return err
	}
	m.heap, m.kind, m.use, m.ptr, m.size = h, device.PinnedMemory, &h.registered, p, size
	m.drop, m.after = h.ctx.Unregister, after
	m.use.add(size)
	return nil
}

// Open makes m the first size bytes of an allocation of another process. after, unless it is nil, is called
// once the driver has closed it.
func (h *Heap) Open(m *Memory, handle cuda.Handle, size int64, after func()) error {
	p, err := h.ctx.OpenMemory(handle)
	if err != nil {
		return err
	}
	m.heap, m.kind, m.use, m.ptr, m.size = h, device.OwnMemory, &h.opened, p, size
	m.drop, m.foreign = h.ctx.CloseMemory, true
	if err := m.checkOpened(); err != nil {
		m.use = new(usage) // it was never open for the caller
		return errors.Join(err, m.FreeAfter(nil, nil))
	}
	m.after = after
	m.use.add(size)
	return nil
}

// checkOpened compares what the driver has opened with what the caller expects.
func (m *Memory) checkOpened() error {
	in, err := Lookup(m.heap.ctx, m.ptr)
	switch {
	case err != nil:
		return err
	case in.ID != m.ID():
		return fmt.Errorf("cuda: open memory on %s: it is memory of %s", m.ID(), in.ID)
	case !in.Contains(m.ptr, m.size):
		return fmt.Errorf("cuda: open memory on %s: size = %d, but the allocation has %d bytes", m.ID(), m.size, in.Size-int64(m.ptr-in.Start))
	}
	return nil
}
