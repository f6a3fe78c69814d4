// Package hostpinned provides page-locked host memory to arrow-go: a memory.Allocator
// for builders and readers, and page-locking of existing memory, such as a
// memory-mapped file. A GPU copies from and to page-locked memory at the speed of
// the bus and without staging; arrays in it are exported as device.CUDAHost.
//
//	mem, err := hostpinned.NewAllocator(gpu, hostpinned.WithLimit(1<<30)) // at most 1 GiB; beyond it: see WithFallback
//	b := array.NewInt64Builder(mem)                                       // writes page-locked memory
package hostpinned
