// Package cuda calls the CUDA driver API. The driver is loaded when the first device
// is opened: building needs no CUDA, and a machine without a driver gets an error that
// wraps device.ErrNotSupported.
//
// [Open] loads a driver; [Driver.Context] retains the primary context of a device,
// which is the context that the CUDA runtime API uses in the same process, so that
// memory, streams and events can be shared with it. Each method of a [Context]
// makes the context current, calls the driver and restores the previous context,
// inside one C function: no goroutine has to stay on its thread, and no thread is
// left changed.
//
// Handles and addresses are plain words: package cudaalloc decides when they
// are freed. It also declares the public error type, which [Public] makes of an
// [Error].
package cuda
