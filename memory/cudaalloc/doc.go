// Package cudaalloc is the CUDA backend: it opens NVIDIA GPUs and manages their
// memory, streams and events. The driver is loaded when the first device is opened;
// a program that imports this package builds and runs without one.
//
//	to do this                                     use
//	list the GPUs, touching none                   [Devices], [DriverVersion]
//	open one                                       [Open]; its memory is device.CUDA
//	page-locked and managed memory of the same GPU [Device.Pinned], [Device.Managed]
//	memory that other processes open               [Device.Shareable], [Device.MemoryHandle], [Device.OpenMemory]
//	page-lock memory of others                     [Device.RegisterMemory]; of a slice: package hostpinned
//	build Arrow arrays in managed memory           [NewManagedAllocator]; page-locked: package hostpinned
//	streams, priorities, default streams           [Device.NewStream], [Device.NewStreamWithPriority], [Device.Legacy], [Device.PerThread]
//	a stream for one copy                          [Device.CopyStream]
//	streams and events of other libraries          [Device.WrapStream], [Device.WrapEvent]
//	several GPUs                                   [Device.EnablePeerAccess]
//	call a function after work on unknown streams  [Device.AfterWork]; of one stream: [Stream.AfterWork]
//	call a function after one event                [Event.OnComplete]
//	limit cached memory and memory that waits      [Device.SetLimits], [Limits]
//	wait for frees, give caches back               [Device.Flush], [Device.Trim]
//	captures on streams of other libraries         [Device.HoldSynchronization]
//	what memory is at an address                   [Device.Lookup]
//	see what is allocated                          [Device.ReadStats]
//
// Importing the package registers it for device.CUDA, device.CUDAHost and
// device.CUDAManaged, so that device.Open finds it.
//
// # Contexts and threads
//
// Each GPU's primary context is retained when it is opened, once, for as long as
// the process lives: memory, streams and events are those of the CUDA runtime API
// in the same process (cuDF, PyTorch, CuPy). Every method may be called on any
// goroutine and any thread; none leaves a context current.
//
// # Memory
//
// Device memory comes from a stream-ordered pool that this package creates. It may be used by
// work enqueued after the allocation on the same stream, and by other streams once they
// are ordered after it by an event. Page-locked memory, managed memory and, where the driver
// has no pools, device memory come from caches by size class, and may be used at once.
//
// Free takes the stream of the last work that uses the memory and does not wait for it. Memory
// of a cache is used again once an event on that stream is complete; memory that was exported
// may be used on unknown streams, and is freed after all work of the context, and of those of the other
// GPUs that are open.
//
// When the driver has no memory left, cached memory is given back to it, and [Device.Allocate]
// waits for memory that was freed and that pending work uses: until its context ends, or
// nothing is freed for two seconds.
//
// The driver waits for the GPU where memory that is not of a pool is given back to it, unregistered or closed, and all
// threads that enqueue work wait meanwhile. So cached memory is given back when the GPU is idle, or when it
// is needed: by an allocation, [Device.Flush] or [Device.Trim]. Shareable and registered memory, and memory of other
// processes, waits a second for that. In these cases, and where work is enqueued in the microseconds between the
// look and the call, a stream that is stuck then holds up the process until it goes on.
//
// # Waits
//
// Calls that may wait take a context. When it is done they return its error; the work of the GPU
// goes on, and the wait leaves no goroutine, thread or use of the handle behind. All
// other calls return without waiting for the GPU, except [Device.Copy] of plain host memory and between memory of the
// host, for which the driver may wait, and calls that enqueue work on a stream that is full.
//
// # Streams
//
// A stream takes a certain amount of pending work (1,022 fills on an H200 with CUDA 13.0, or 55 small copies with a
// record behind each); the next call that enqueues work on it blocks in the driver until some of it is done, whatever
// its context. So this package counts what it enqueues on each stream. Where half of that may be pending on a stream that
// does not move on, [Device.Upload], [Device.CopyContext] and [Device.Allocate] of stream-ordered memory, and with them
// the copies of package cdevice, wait until their context ends. [Device.Copy], [Device.Memset], [Stream.Record],
// [Stream.WaitEvent], [Stream.AfterWork] and frees have no context, and do not wait here: a program that makes hundreds of such
// calls, or enqueues hundreds of kernels, on a stream that it holds back may block in the driver. Work of other libraries
// and on [Device.PerThread] is not counted.
//
// This package enqueues no host functions (cuLaunchHostFunc). One of the program that blocks holds up its stream and, as the
// driver calls them one after the other, all other host functions.
//
// # Stream capture
//
// Allocating, freeing, querying and waiting leave stream captures (CUDA graphs) of the host
// program valid. Operations that synchronise the whole context, above all [Device.AfterWork],
// wait until no capture is visible; captures that are not visible need
// [Device.HoldSynchronization].
//
// Memory is not allocated or freed on a stream that is being captured: for the driver, that is a part of
// the graph. The driver refuses work on the legacy default stream while a stream that is ordered with it
// captures, and invalidates that capture. A program with such captures names other streams.
// Memory may be freed with a nil stream even then: it is freed after all work of the context.
//
// # Errors
//
// A failed call of the driver is an [*Error]: the call, its arguments, the device,
// the driver's name and text of the code. errors.Is finds the code
// ([OutOfMemory], ...), and device.ErrNotSupported where this machine or driver
// cannot do it. A stream or an event that is used after Close is an error that wraps [ErrClosed]. The error of a wait that its context ended wraps the context's error; that of an
// allocation that waited in vain wraps [OutOfMemory] as well.
package cudaalloc
