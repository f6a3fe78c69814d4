package hostpinned

import (
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Allocator is a memory.Allocator of arrow-go over page-locked memory, to be used
// under every builder and by the IPC reader (ipc.WithAllocator). What is freed is
// cached by size class, because page-locking costs milliseconds. It may be used from
// any goroutine, and every GPU of the process may copy from and to its memory.
//
// Memory may be freed (arrays released) only when no copy from or to it is under
// way; see cudaalloc.Device.AfterWork. Allocate and Reallocate panic with an
// [*AllocationError] when there is no memory, since a memory.Allocator cannot return
// an error; Free does for memory that is not this allocator's.
type Allocator struct {
	*sizeclass.Allocator
	dev *cudaalloc.Device
}

// AllocationError is what an allocator panics with. It wraps [ErrLimit], or the
// driver's error.
type AllocationError = sizeclass.Error

// ErrLimit says that an allocator holds as much as it may.
var ErrLimit = sizeclass.ErrLimit

// New returns an allocator that page-locks at most limit bytes, what it caches
// included; 0 is no limit. Page-locked memory is taken from all of the machine, so a
// limit is wise, and one allocator for the whole process is best.
func New(gpu *cudaalloc.Device, limit int64) *Allocator {
	a := &Allocator{sizeclass.NewAllocator(sizeclass.New(sizeclass.Of(gpu.Host()), sizeclass.Limits{Total: limit})), gpu.Host()}
	gpu.OnTrim(a.Trim)
	return a
}

// Device is the device whose memory this is: device.CUDAHost.
func (a *Allocator) Device() *cudaalloc.Device { return a.dev }
