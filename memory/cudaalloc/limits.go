package cudaalloc

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// Limits bound the memory that one GPU caches, and the memory that waits to be freed. They can be
// changed at any time. Allocators of [NewManaged] and package hostpinned have limits of their own,
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
	// take up to twice as long; 0 keeps it for ever. It is given back after the work that the GPU
	// then has.
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

// idleLimit is a limit of Limits as one of a cache, where 0 is none.
func idleLimit(bytes int64) int64 {
	if bytes == 0 {
		return -1
	}
	return bytes
}

// limits are those of a GPU.
type limits struct {
	mu      sync.Mutex
	now     Limits
	waiting atomic.Int64
}

// Limits returns the limits of the GPU, which its three kinds of memory share.
func (d *Device) Limits() Limits {
	d.limits.mu.Lock()
	defer d.limits.mu.Unlock()
	return d.limits.now
}

// SetLimits changes the limits of the GPU, and gives cached memory beyond them back to the
// driver. Negative numbers are an error. It does not wait.
func (d *Device) SetLimits(l Limits) error {
	for name, n := range map[string]int64{
		"PinnedIdle": l.PinnedIdle, "ManagedIdle": l.ManagedIdle, "DeviceIdle": l.DeviceIdle,
		"Waiting": l.Waiting, "IdleAfter": int64(l.IdleAfter),
	} {
		if n < 0 {
			return fmt.Errorf("cuda: limits of %s: Limits.%s = %d: negative", d.ctx, name, n)
		}
	}
	if err := d.setLimits(l); err != nil {
		return err
	}
	d.trimmer.changed(d.gpu)
	return nil
}

func (d *Device) setLimits(l Limits) error {
	d.limits.mu.Lock()
	defer d.limits.mu.Unlock()
	if d.pool != 0 {
		if err := d.ctx.SetReleaseThreshold(d.pool, l.DeviceIdle); err != nil {
			return err
		}
	}
	d.limits.now = l
	d.limits.waiting.Store(l.Waiting)
	for purpose, idle := range [purposes]int64{onDevice: l.DeviceIdle, onHost: l.PinnedIdle, inManaged: l.ManagedIdle} {
		if cache := d.caches[purpose]; cache != nil {
			cache.SetLimits(sizeclass.Limits{Idle: idleLimit(idle)})
		}
	}
	return nil
}

// CountWaiting adds bytes to the memory that waits to be freed, of [Limits] and [Stats]; a negative
// number takes away what was added. See [device.WaitCounter].
func (d *Device) CountWaiting(bytes int64) {
	d.deferred.bytes.Add(bytes)
	if bytes <= 0 {
		d.deferred.mu.Lock()
		defer d.deferred.mu.Unlock()
		d.deferred.freed = time.Now()
	}
}
