// Package cuda speaks the CUDA driver API. The driver is found at run time, when
// somebody opens a device: nothing here needs CUDA to build, and a machine without
// it gets an error that wraps device.ErrNotSupported.
//
// [Open] loads a driver; [Driver.Context] retains the primary context of a device,
// which is the context that the CUDA runtime API uses in the same process, so that
// memory, streams and events can be shared with it. Each method of a [Context]
// makes the context current, calls the driver and restores what was current, inside
// one C function: no goroutine has to stay on its thread, and no thread is left
// changed.
//
// There is no policy here: handles and addresses are words, and who frees what is
// for package cudaalloc to know.
package cuda
