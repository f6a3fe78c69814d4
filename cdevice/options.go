package cdevice

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/importopt"
)

// ImportOption is an option of an import. A nil option, or one that is given a nil argument, is an error
// of the function that it is passed to.
type ImportOption func(*importOptions)

// importOptions has a field for package cdata, whose option is no function of this package.
type importOptions = importopt.Options

// noOptions are the options of an import without options, which need no memory.
var noOptions importOptions

// importOptionsFor applies the options of an import. If an option panics, it releases the array.
func importOptionsFor(in *cstruct.Input, opts []ImportOption) *importOptions {
	if len(opts) == 0 {
		return &noOptions
	}
	o := new(importOptions)
	done := false
	defer func() {
		if !done {
			o.Discard(in)
		}
	}()
	apply(fielderr.OpImport, o, &o.Err, opts)
	done = true
	return o
}

// WithDevice names the opened device that the memory is on, instead of the one that device.Open returns
// for the declared type and ID: for a device that was opened with options of its own. A device of
// another type, or with another ID, is an error.
func WithDevice(dev device.Device) ImportOption {
	return func(o *importOptions) {
		need(&o.Err, fielderr.OpImport, "WithDevice", dev, "a device")
		if !argument.IsNil(dev) {
			o.Device = dev
		}
	}
}

// WithCPUAccessible declares that the CPU can access the memory at its addresses, although the device
// type does not imply that: for unified memory that a producer labels as its GPU's, as ArrowMetal and
// nanoarrow do for METAL arrays. HostView, CopyToHost, AsCPU and ValidateFull then read the memory; if
// the CPU cannot access it, the process crashes. The batch keeps its device. On a hardware-coherent machine
// ([device.Coherent]) no declaration is needed.
//
// Functions that read a batch with an event still wait for the event, for which the device needs a
// backend: without one the import fails with an error that wraps device.ErrNotSupported.
func WithCPUAccessible() ImportOption {
	return func(o *importOptions) { o.CPUAccessible = true }
}

// WithReleaseAfterEvent delays the producer's release callback until the array's event is complete. It
// is for producers whose release frees the memory while their own work is still filling it, as
// nanoarrow's copies to a device do.
//
// Releasing the batch does not wait. If the event is pending, the callback is called later, on a
// goroutine of the device's backend, through the function of [WithReleaser] if that is given too. The
// option also applies to an array that the import refuses.
//
// The device needs a backend, which queries the event: without one, importing an array with an event
// fails with an error that wraps device.ErrNotSupported, and the array is released at once.
func WithReleaseAfterEvent() ImportOption {
	return func(o *importOptions) { o.AfterEvent = true }
}

// WithReleaser passes the producer's release callback to f as release, which f calls once, at any time
// and on any thread; later calls do nothing. It is for producers that require more of their caller than
// the specification does; [WithGIL] is one such f. It also applies to an array that the import refuses.
// The caller's struct is marked released when the import returns, even if f calls release later.
func WithReleaser(f func(release func())) ImportOption {
	return func(o *importOptions) {
		need(&o.Err, fielderr.OpImport, "WithReleaser", f, "a function")
		if f != nil {
			o.ReleaseWith = func(release func()) { f(once(release)) }
		}
	}
}

// once returns a function that calls f the first time only. Unlike sync.Once, later calls do not
// wait for the first, which may be running on the same thread.
func once(f func()) func() {
	var called atomic.Bool
	return func() {
		if !called.Swap(true) {
			f()
		}
	}
}

// WithGIL calls the producer's release callback while holding Python's global interpreter lock, if
// there is a Python in this process. pylibcudf's callback drops a Python reference without acquiring
// the lock. A thread that holds the lock must not wait for the release. The lock is that of the interpreter that the thread
// runs, and else that of the main one.
func WithGIL() ImportOption { return WithReleaser(bridge.WithGIL) }
