package cudaalloc

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
)

// Allocate returns owned memory of this kind, of size bytes. Stream-ordered device
// memory may be used by work on s from now on, and by other streams after an event
// of s; a nil stream is the legacy default stream. All other memory may be used at once,
// page-locked and managed memory also by the CPU; it comes from a cache, see [Limits]. Memory of 256 bytes
// or more is aligned to 256 bytes.
//
// Where the driver has no memory left, cached memory is given back to it, and
// Allocate waits for memory that was freed and that pending work may still use: until ctx is
// done, or for two seconds in which nothing is freed. The error then wraps [OutOfMemory].
// Allocate waits in the same way where more than [Limits.Waiting] bytes wait to be freed, and for stream-ordered
// memory until s has room, or ctx is done.
func (d *Device) Allocate(ctx context.Context, size int64, s device.Stream) (device.Memory, error) {
	if err := d.mayAllocate(ctx, size); err != nil {
		return nil, err
	}
	of, stream, err := d.on(s)
	if err != nil {
		return nil, err
	}
	m := &memory{dev: d}
	if err := d.gpu.Heap.Allocate(ctx, &m.Memory, d.kind, size, of, stream); err != nil {
		return nil, err
	}
	return m, nil
}

// AllocateHost returns owned page-locked memory from the cache of the GPU: Allocate of
// [Device.Pinned], without a stream.
func (d *Device) AllocateHost(ctx context.Context, size int64) (device.Memory, error) {
	return d.Pinned().Allocate(ctx, size, nil)
}

func (d *Device) mayAllocate(ctx context.Context, size int64) error {
	if size < 0 {
		return fmt.Errorf("cuda: allocate %d bytes on %s: negative size", size, d.ID())
	}
	if err := argument.Context("cuda: allocate", ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cuda: allocate %d bytes on %s: %w", size, d.ID(), err)
	}
	return nil
}

// memory is one allocation.
type memory struct {
	gpu.Memory
	dev *Device
}

// Free ends the memory after the work on s. Stream-ordered memory is freed as work on s. All
// other memory goes back to its cache when an event is complete that is recorded on s.
//
// Where the driver fails, the error is returned, and the memory is freed after all work
// that the GPU has now.
func (m *memory) Free(s device.Stream) error {
	_, stream, err := m.dev.on(s)
	return m.Memory.Free(&m.dev.gpuOf(s).Events, stream, err)
}

// FreeAfter ends the memory once e is complete; nil: now, because no pending work uses it.
func (m *memory) FreeAfter(e device.Event) error {
	if e == nil {
		return m.Memory.FreeAfter(nil, nil)
	}
	after, err := await(e)
	return m.Memory.FreeAfter(after, err)
}
