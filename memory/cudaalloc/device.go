package cudaalloc

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
)

func init() {
	register := func(t device.Type, space func(*Device) *Device) {
		device.Register(t, func(ordinal int64) (device.Device, error) {
			// Some producers number no device for page-locked and managed memory.
			if ordinal == device.NoOrdinal && t != device.CUDA {
				ordinal = 0
			}
			d, err := Open(ordinal)
			if err != nil {
				return nil, err
			}
			return space(d), nil
		})
	}
	register(device.CUDA, func(d *Device) *Device { return d })
	register(device.CUDAHost, (*Device).Pinned)
	register(device.CUDAManaged, (*Device).Managed)
	device.RegisterUUIDs(device.CUDA, uuids)
	gpu.Of = func(dev any) *gpu.GPU { return dev.(*Device).gpu }
}

// Device is one kind of memory of one GPU: its own (device.CUDA), memory of its own that other processes can
// open (device.CUDA, too), page-locked host memory (device.CUDAHost) or managed memory (device.CUDAManaged).
// The four share streams, events and statistics. It is a device.Device.
type Device struct {
	gpu   *gpu.GPU
	kind  device.MemoryKind
	kinds *kinds
}

// kinds are the devices of one GPU.
type kinds [4]*Device

var _ interface {
	device.Device
	device.Stager
	device.Memsetter
	device.CopyStreamer
	device.Prober
	device.WaitCounter
	device.Sharer
	device.HostRegistrar
} = (*Device)(nil)

// Open returns the GPU with this ordinal, retaining its primary context at the
// first call. There is one Device per GPU and driver; it is never closed.
//
// After another part of the program has reset the primary context
// (cuDevicePrimaryCtxReset, cudaDeviceReset), Open returns a new Device. The previous
// Device and its memory, streams and events ended with the reset: each use of them
// is an error.
//
// The error wraps device.ErrNotSupported where there is no driver, a driver that is
// too old, or no such GPU.
func Open(ordinal int64, opts ...Option) (*Device, error) {
	p, err := openPlatform("Open", opts)
	if err != nil {
		return nil, err
	}
	g, err := p.Open(ordinal, func(g *gpu.GPU) error {
		all := new(kinds)
		for kind := range all {
			all[kind] = &Device{gpu: g, kind: device.MemoryKind(kind), kinds: all}
		}
		g.Face = all
		return all[device.OwnMemory].SetLimits(DefaultLimits())
	})
	if err != nil {
		return nil, err
	}
	return g.Face.(*kinds)[device.OwnMemory], nil
}

// Gone reports whether the primary context was reset since the GPU was opened: then
// Open returns another Device. It asks the driver.
func (d *Device) Gone() bool { return d.gpu.Gone() }

// Own returns the device for the memory on the GPU itself: device.CUDA.
func (d *Device) Own() *Device { return d.kinds[device.OwnMemory] }

// Shareable returns the device for memory on the GPU that other processes can open: device.CUDA, as
// [Device.Own], but each allocation is one of cuMemAlloc, outside the pool, and is given back to the driver
// when it is freed, since a handle refers to a whole allocation for as long as that lives. Allocating is slow
// (the driver works on whole pages of 2 MB), and the memory is freed once the GPU has no work, or after a second.
func (d *Device) Shareable() *Device { return d.kinds[device.ShareableMemory] }

// Pinned returns the device for the page-locked host memory of the GPU: device.CUDAHost, which
// the GPU copies from and to at the speed of the bus, and the CPU reads and writes.
func (d *Device) Pinned() *Device { return d.kinds[device.PinnedMemory] }

// Managed returns the device for the managed memory of the GPU: device.CUDAManaged, which the
// driver moves between the GPU and the host as they touch it.
func (d *Device) Managed() *Device { return d.kinds[device.ManagedMemory] }

// MemoryKind returns the kind of memory that Allocate returns. It tells the devices of one GPU apart, of which
// [Device.Own] and [Device.Shareable] have the same ID.
func (d *Device) MemoryKind() device.MemoryKind { return d.kind }

// WithMemory is [Device.Own], [Device.Shareable], [Device.Pinned] or [Device.Managed].
func (d *Device) WithMemory(kind device.MemoryKind) (device.Device, error) {
	if kind < 0 || int(kind) >= len(d.kinds) {
		return nil, fmt.Errorf("cuda: %s has no memory of kind %s: %w", d.ID(), kind, device.ErrNotSupported)
	}
	return d.kinds[kind], nil
}

// ID returns the type of the memory and the ordinal of the GPU.
func (d *Device) ID() device.ID { return d.gpu.Heap.ID(d.kind) }

// Name returns the name of the GPU.
func (d *Device) Name() string { return d.gpu.Name }

// CPUAccessible reports true for page-locked memory, and for managed memory where the GPU has
// concurrent managed access (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS). On other GPUs, and on
// Windows, the process is ended if the host touches any managed memory while the GPU runs any
// work.
func (d *Device) CPUAccessible() bool {
	return d.ID().Type.CPUAccessible() && (d.kind != device.ManagedMemory || d.gpu.Concurrent)
}

// HardwareCoherent reports whether the GPU uses the page tables of the CPU
// (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES), as the GPUs of Grace Hopper do. Work on such
// a GPU accesses all memory of the CPU, and the CPU accesses managed memory that is on the GPU without moving it. Memory of [Device.Own] and [Device.Shareable] is not CPU-accessible there either.
func (d *Device) HardwareCoherent() bool { return d.gpu.Coherent }

// Context returns the CUcontext of the GPU, its primary context, for other libraries of
// the process. It is valid until the primary context is reset; see [Device.Gone].
func (d *Device) Context() uintptr { return d.gpu.Ctx.Handle() }

// MemoryInfo returns the free and the total memory of the GPU in bytes. Memory that the pool of
// this package keeps counts as used; see [Device.Trim].
func (d *Device) MemoryInfo() (free, total int64, err error) { return d.gpu.Ctx.MemoryInfo() }

// Lookup asks the driver which allocation p is in, including allocations of other libraries.
func (d *Device) Lookup(p device.Ptr) (device.Allocation, error) { return gpu.Lookup(d.gpu.Ctx, p) }
