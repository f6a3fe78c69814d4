package cudaalloc

import (
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/gpu"
)

// Limits bound the memory that one GPU caches, and the memory that waits to be freed. They can be
// changed at any time. Allocators of [NewManagedAllocator] and package hostpinned have limits of their own,
// and keep their cached memory until [Device.Trim] or an allocation that finds no memory.
type Limits struct {
	// PinnedIdle, ManagedIdle and DeviceIdle are the most bytes of page-locked, managed and
	// device memory that are cached although nothing uses them, because allocating them again
	// takes long; 0 caches none. DeviceIdle is the release threshold of the pool, which the
	// driver applies when it next waits for the GPU; without pools, the limit of a cache.
	PinnedIdle, ManagedIdle, DeviceIdle int64
	// Waiting is the most bytes that were freed and that pending work may still use, of all
	// kinds together, with batches of package cdevice that were released; beyond it, or where
	// more than 65536 frees and functions wait, [Device.Allocate] waits. Memory that is freed in the
	// order of a stream (device memory, with pools) does not count; staging memory has limits of its
	// own, see [Device.Upload].
	Waiting int64
	// IdleAfter is the time after which unused memory is given back to the driver, which may
	// take up to twice as long; 0 keeps it for ever. Memory of the pool is given back at once, other memory
	// when the GPU is idle.
	IdleAfter time.Duration
}

// DefaultLimits returns the limits of a GPU that was just opened: 256 MiB each of page-locked and of
// managed memory, any amount of device memory, 256 MiB that wait, 10 seconds.
func DefaultLimits() Limits {
	return Limits{
		PinnedIdle: 256 << 20, ManagedIdle: 256 << 20, DeviceIdle: math.MaxInt64,
		Waiting: 256 << 20, IdleAfter: 10 * time.Second,
	}
}

// Limits returns the limits of the GPU, which all kinds of its memory share.
func (d *Device) Limits() Limits { return Limits(d.gpu.Heap.Limits()) }

// SetLimits changes the limits of the GPU, and gives cached memory beyond them back to the
// driver. Negative numbers are an error. It does not wait.
func (d *Device) SetLimits(l Limits) error {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"PinnedIdle", l.PinnedIdle}, {"ManagedIdle", l.ManagedIdle}, {"DeviceIdle", l.DeviceIdle},
		{"Waiting", l.Waiting}, {"IdleAfter", int64(l.IdleAfter)},
	} {
		if field.value < 0 {
			return fmt.Errorf("cuda: limits of %s: Limits.%s = %d, want 0 or more: %w",
				d.gpu.Ctx, field.name, field.value, arrow.ErrInvalid)
		}
	}
	return d.gpu.Heap.SetLimits(gpu.Limits(l))
}

// CountWaiting adds bytes to the memory that waits to be freed, of [Limits] and [Stats]; a negative
// number takes away what was added. See [device.WaitCounter].
func (d *Device) CountWaiting(bytes int64) { d.gpu.Deferred.CountWaiting(bytes) }
