package gpu

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

// usage counts allocations of one kind.
type usage struct{ live, peak, allocations, total atomic.Int64 }

func (u *usage) add(size int64) {
	u.allocations.Add(1)
	u.total.Add(1)
	live := u.live.Add(size)
	for peak := u.peak.Load(); live > peak && !u.peak.CompareAndSwap(peak, live); {
		peak = u.peak.Load()
	}
}

func (u *usage) sub(size int64) {
	u.live.Add(-size)
	u.allocations.Add(-1)
}

func (u *usage) read() sizeclass.Use {
	return sizeclass.Use{Live: u.live.Load(), Peak: u.peak.Load(), Allocations: u.allocations.Load(), Total: u.total.Load()}
}

func (u *usage) forget() {
	u.live.Store(0)
	u.allocations.Store(0)
}

// The purposes of memory, which are counted apart.
const (
	onDevice = iota
	onHost
	inManaged
	purposes
)

func purposeOf(kind device.MemoryKind) int {
	switch kind {
	case device.PinnedMemory:
		return onHost
	case device.ManagedMemory:
		return inManaged
	}
	return onDevice
}

// TypeOf returns the type of a device with memory of a kind.
func TypeOf(kind device.MemoryKind) device.Type {
	return [...]device.Type{onDevice: device.CUDA, onHost: device.CUDAHost, inManaged: device.CUDAManaged}[purposeOf(kind)]
}
