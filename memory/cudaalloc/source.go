package cudaalloc

import (
	"context"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// source is the driver's memory of one kind, which a cache takes in large pieces.
type source struct{ *Device }

// source is memory of this kind as the driver allocates it, for the GPU's caches.
func (d *Device) source() sizeclass.Source { return source{d} }

// Allocate asks the driver. It does not wait.
func (s source) Allocate(ctx context.Context, size int64) (p device.Ptr, err error) {
	switch s.kind {
	case device.CUDAHost:
		p, err = s.ctx.NewHost(size)
	case device.CUDAManaged:
		p, err = s.ctx.NewManaged(size)
	default:
		p, err = s.ctx.NewMemory(size)
	}
	if err != nil {
		return 0, err
	}
	if s.kind != device.CUDA {
		s.platform.locked.add(p, size, s.kind == device.CUDAManaged)
	}
	return p, nil
}

// Watcher is told which parts of the memory are in use; nil if nobody wants to know.
func (s source) Watcher(device.Ptr) sizeclass.Watcher { return s.watcher() }

func (g *gpu) watcher() sizeclass.Watcher {
	if !g.ctx.Watched() {
		return nil
	}
	return g.ctx
}

// Free gives memory back to the driver that no pending work uses. The driver waits for the
// GPU all the same, so Free calls it only when the GPU is idle.
func (s source) Free(p device.Ptr, size int64) {
	if s.kind != device.CUDA {
		s.platform.locked.remove(p)
	}
	s.deferred.add(s.gpu, &deferral{bytes: size, end: func() error {
		if s.kind == device.CUDAHost {
			return s.ctx.FreeHost(p)
		}
		return s.ctx.FreeMemory(p)
	}})
}
