// Package cudaalloc is the CUDA backend: it opens NVIDIA GPUs and gives out their
// memory, streams and events. The driver is loaded when the first device is opened;
// a program that imports this package builds and runs without one.
//
//	to do this                                     use
//	list the GPUs, touching none                   [Devices], [DriverVersion]
//	open one                                       [Open]; its memory is device.CUDA
//	page-locked and managed memory of the same GPU [Device.Host], [Device.Managed]
//	build Arrow arrays in managed memory           [NewManaged]; page-locked: package hostpinned
//	streams, priorities, default streams           [Device.NewStream], [Device.NewStreamWithPriority], [Device.Legacy], [Device.PerThread]
//	streams and events of other libraries          [Device.WrapStream], [Device.WrapEvent]
//	several GPUs                                   [Device.EnablePeerAccess]
//	end what others may still be using             [Device.AfterWork]
//	what memory is at an address                   [Device.Lookup]
//	see what is allocated                          [Device.Stats]
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
// Device memory comes from a stream-ordered pool of our own, which keeps what is
// freed, or from cuMemAlloc where the driver has no pools. Stream-ordered memory may
// be used by work enqueued after the allocation on the same stream, and by other
// streams once they are ordered after it by an event. When the driver has no memory
// left, what waits to be freed is freed, pools and caches are trimmed, and the
// allocation is tried once more before it fails.
//
// # Errors
//
// A failed call of the driver is an [*Error]: the call, its arguments, the device,
// the driver's name and text of the code. errors.Is compares with the codes
// ([OutOfMemory], ...), and with device.ErrNotSupported where this machine or driver
// cannot do it.
package cudaalloc
