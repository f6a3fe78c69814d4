package cuda

// #include "driver.h"
import "C"

import "github.com/arrowdevice/arrowdevice/device"

// NewMemory allocates device memory (cuMemAlloc).
func (c *Context) NewMemory(size int64) (device.Ptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_memory_new(c.table, c.word(), C.size_t(size))
	return device.Ptr(r.value), errorOf1(c.Device, r, size)
}

// FreeMemory frees device or managed memory (cuMemFree), and waits for the device first.
func (c *Context) FreeMemory(p device.Ptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_memory_free(c.table, c.word(), C.uintptr_t(p)), uintptr(p))
}

// NewManaged allocates managed memory, to be freed with FreeMemory.
func (c *Context) NewManaged(size int64) (device.Ptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_managed_new(c.table, c.word(), C.size_t(size))
	return device.Ptr(r.value), errorOf1(c.Device, r, size)
}

// HostOrdinal is the host as the target of a prefetch: CU_DEVICE_CPU.
const HostOrdinal = -1

// Prefetch enqueues the migration of managed memory to the device with this ordinal.
func (c *Context) Prefetch(p device.Ptr, size int64, ordinal int, stream uintptr) error {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_managed_prefetch(c.table, c.word(), C.uintptr_t(p), C.size_t(size), C.int(ordinal), C.uintptr_t(stream))
	return errorOf3(c.Device, r, uintptr(p), size, ordinal)
}

// NewHost allocates page-locked host memory, for every context.
func (c *Context) NewHost(size int64) (device.Ptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_host_new(c.table, c.word(), C.size_t(size))
	return device.Ptr(r.value), errorOf1(c.Device, r, size)
}

// FreeHost frees page-locked memory; it may wait for the device.
func (c *Context) FreeHost(p device.Ptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_host_free(c.table, c.word(), C.uintptr_t(p)), uintptr(p))
}

// Flags of [Context.Register].
const (
	registerPortable = 0x01
	registerReadOnly = 0x08
)

// Register page-locks host memory that exists, for every context.
func (c *Context) Register(p device.Ptr, size int64, readOnly bool) error {
	defer c.tellCaller()()
	flags := registerPortable
	if readOnly {
		flags |= registerReadOnly
	}
	r := C.cdevice_v0_cuda_host_register(c.table, c.word(), C.uintptr_t(p), C.size_t(size), C.uint(flags))
	return errorOf2(c.Device, r, uintptr(p), size)
}

// Unregister undoes Register.
func (c *Context) Unregister(p device.Ptr) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_host_unregister(c.table, c.word(), C.uintptr_t(p)), uintptr(p))
}

// Pool is a CUmemoryPool.
type Pool uintptr

// NewPool creates a pool of the device's memory. See [Context.SetReleaseThreshold] for its cache.
func (c *Context) NewPool() (Pool, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_pool_new(c.table, c.word(), C.int(c.ordinal))
	return Pool(r.value), errorOf(c.Device, r)
}

// FreePool ends the pool.
func (c *Context) FreePool(p Pool) error {
	return errorOf(c.Device, C.cdevice_v0_cuda_pool_free(c.table, c.word(), C.uintptr_t(p)))
}

// PoolAccess lets work of peer read and write memory of the pool.
func (c *Context) PoolAccess(p Pool, peer *Context) error {
	r := C.cdevice_v0_cuda_pool_access(c.table, c.word(), C.uintptr_t(p), C.int(peer.ordinal))
	return errorOf1(c.Device, r, peer.String())
}

// SetReleaseThreshold sets how many bytes of freed memory the pool keeps when the driver next waits
// for the device.
func (c *Context) SetReleaseThreshold(p Pool, bytes int64) error {
	return errorOf1(c.Device, C.cdevice_v0_cuda_pool_keep(c.table, c.handle, C.uintptr_t(p), C.uint64_t(bytes)), bytes)
}

// TrimPool gives the memory that the pool keeps back to the system.
func (c *Context) TrimPool(p Pool) error {
	return errorOf(c.Device, C.cdevice_v0_cuda_pool_trim(c.table, c.word(), C.uintptr_t(p)))
}

// NewPoolMemory allocates from the pool, in stream order.
func (c *Context) NewPoolMemory(p Pool, size int64, stream uintptr) (device.Ptr, error) {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_pool_memory_new(c.table, c.word(), C.uintptr_t(p), C.size_t(size), C.uintptr_t(stream))
	return device.Ptr(r.value), errorOf1(c.Device, r, size)
}

// FreePoolMemory frees memory of a pool, in stream order.
func (c *Context) FreePoolMemory(p device.Ptr, stream uintptr) error {
	defer c.tellCaller()()
	r := C.cdevice_v0_cuda_pool_memory_free(c.table, c.word(), C.uintptr_t(p), C.uintptr_t(stream))
	return errorOf1(c.Device, r, uintptr(p))
}
