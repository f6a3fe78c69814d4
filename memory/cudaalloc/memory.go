package cudaalloc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Allocate returns owned memory of this kind, of size bytes. Stream-ordered device
// memory may be used by work on s from now on, and by other streams after an event
// of s; a nil stream is the legacy default stream. Page-locked and managed memory may
// be used at once, also by the CPU. When there is none, what waits to be freed is
// freed first; the error then wraps [OutOfMemory].
func (d *Device) Allocate(ctx context.Context, size int64, s device.Stream) (device.Memory, error) {
	if size < 0 {
		return nil, fmt.Errorf("cuda: allocate %d bytes on %s: negative size", size, d.ID())
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cuda: allocate %d bytes on %s: %w", size, d.ID(), err)
	}
	of, stream, err := d.on(s)
	if err != nil {
		return nil, err
	}
	m := &memory{dev: d, size: size}
	if size == 0 {
		return m, nil
	}
	m.ptr, err = d.take(of, size, stream)
	if errors.Is(err, OutOfMemory) {
		if trimmed := d.Trim(ctx); trimmed != nil {
			return nil, errors.Join(err, trimmed)
		}
		m.ptr, err = d.take(of, size, stream)
	}
	if err != nil {
		return nil, err
	}
	d.usage[d.purpose()].add(size)
	if d.kind.HostReadable() {
		d.platform.locked.add(m.ptr, size)
	}
	return m, nil
}

func (d *Device) take(ctx *cuda.Context, size int64, stream uintptr) (device.Ptr, error) {
	switch {
	case d.kind == device.CUDAHost:
		return d.ctx.NewHost(size)
	case d.kind == device.CUDAManaged:
		return d.ctx.NewManaged(size)
	case d.pool != 0:
		return ctx.NewPoolMemory(d.pool, size, stream)
	}
	return d.ctx.NewMemory(size)
}

// memory is one allocation.
type memory struct {
	dev   *Device
	ptr   device.Ptr
	size  int64
	freed atomic.Bool
}

func (m *memory) Ptr() device.Ptr { return m.ptr }
func (m *memory) Size() int64     { return m.size }

// Free of stream-ordered memory is work on s. All other memory is freed by the
// reaper once the GPU's work so far is done, because freeing it waits for that.
// Where the driver fails, the error is returned, and the reaper tries again.
func (m *memory) Free(s device.Stream) error {
	if m.freed.Swap(true) {
		return errFreedTwice
	}
	if m.size == 0 {
		return nil
	}
	ctx, stream, err := m.dev.on(s)
	if err == nil && m.dev.kind == device.CUDA && m.dev.pool != 0 {
		if err = ctx.FreePoolMemory(m.ptr, stream); err == nil {
			m.dev.usage[m.dev.purpose()].sub(m.size)
			return nil
		}
	}
	m.dev.reaper.later(m.dev.gpu, m.end)
	return err
}

// FreeAfter ends the memory once e is complete.
func (m *memory) FreeAfter(e device.Event) error { return m.Free(nil) }

// end frees memory that no work uses any more.
func (m *memory) end() error {
	var err error
	if m.dev.kind.HostReadable() {
		m.dev.platform.locked.remove(m.ptr)
	}
	switch d := m.dev; {
	case d.kind == device.CUDAHost:
		err = d.ctx.FreeHost(m.ptr)
	case d.kind == device.CUDA && d.pool != 0:
		err = d.ctx.FreePoolMemory(m.ptr, d.background)
	default:
		err = d.ctx.FreeMemory(m.ptr)
	}
	if err == nil {
		m.dev.usage[m.dev.purpose()].sub(m.size)
	}
	return err
}
