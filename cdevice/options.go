package cdevice

import (
	"fmt"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ImportOption changes how an import treats its input. One that is nil does nothing, as a nil
// [CopyOption]; an option that is given nil is an error of the function that takes it.
type ImportOption func(*importOptions)

type importOptions struct {
	nilOption
	dev         device.Device
	releaseWith func(release func())
	queueSize   int // of asynchronous streams

	hostReadable bool // WithCPUAccessible
	afterEvent   bool // WithReleaseAfterEvent
}

// release calls a release callback as WithReleaser says.
func (o *importOptions) release(callback func()) {
	if o.releaseWith == nil {
		callback()
	} else {
		o.releaseWith(callback)
	}
}

// discard releases an array that is not imported. The struct is moved first: WithReleaser may
// call the release callback when the caller's memory holds something else.
func (o *importOptions) discard(in cstruct.Input) {
	if in.Array == nil || in.Array.Release == 0 {
		return
	}
	mem := tree.Adopt(in.Array)
	mem.ReleaseWith = o.releaseWith
	_ = o.awaitBeforeRelease(mem, o.named(cstruct.PlaceOf(in))) // an event that cannot be waited for is not
	mem.Release()
}

// discard releases an array that could not be imported, with these options.
func discard(in cstruct.Input, opts []ImportOption) {
	var o importOptions
	defer func() { o.discard(in) }() // even if an option panics
	apply(&o, opts)
}

// WithDevice says which device the memory lives on, instead of the one that
// device.Open gives for the declared type and id: for a device that was opened with
// options of its own. A device of another type, or with another id, is an error.
func WithDevice(dev device.Device) ImportOption {
	return func(o *importOptions) {
		o.need(fielderr.OpImport, "WithDevice", dev, "a device")
		if !fielderr.IsNil(dev) {
			o.dev = dev
		}
	}
}

// deviceFor is the device that WithDevice named. Some producers number no device for
// page-locked and managed memory.
func (o *importOptions) deviceFor(declared device.ID, names *cstruct.StructNames) (device.Device, error) {
	id := o.dev.ID()
	if names == cstruct.PlainNames {
		return o.dev, o.checkPlain()
	}
	if id.Type != declared.Type {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_type", int32(declared.Type), fmt.Sprintf("%d, as the device that was named", int32(id.Type)))
	}
	if id.Ordinal != declared.Ordinal && (declared.Ordinal != device.NoOrdinal || !id.Type.CPUAccessible()) {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_id", declared.Ordinal, fmt.Sprintf("%d, as the device that was named", id.Ordinal))
	}
	return o.dev, nil
}

// checkPlain returns an error where an option is not one for structs without a device.
func (o *importOptions) checkPlain() error {
	if o.dev != nil && o.dev.ID().Type != device.CPU {
		return fielderr.Invalid(fielderr.OpImport, "WithDevice", o.dev.ID().String(), "the CPU, where the memory of a plain struct is")
	}
	return nil
}

// WithCPUAccessible declares that the host can read the memory at its addresses, although
// its device type does not mean that: unified memory that a producer labels as its GPU's, as the METAL arrays
// of ArrowMetal and nanoarrow are. HostView, CopyToHost, AsCPU and
// ValidateFull then read it. The process crashes if that is not so. The batch keeps its device.
//
// A batch with an event still waits for it, for which its device needs a backend: without
// one the import fails, and the error wraps device.ErrNotSupported.
func WithCPUAccessible() ImportOption {
	return func(o *importOptions) { o.hostReadable = true }
}

// WithReleaseAfterEvent calls the producer's release callback only when the event of the array is
// complete, for producers that free the memory at once while work of their own is still
// filling it: nanoarrow does, if a copy of its is released unread. Releasing the batch does not
// wait; where the event is pending, the callback is called later, on a goroutine of the device's
// backend, through WithReleaser if that is given too. It holds for input that is refused as well.
//
// The device needs a backend, which asks for the event: without one, importing an
// array with an event fails, and the error wraps device.ErrNotSupported. The array is then
// released at once.
func WithReleaseAfterEvent() ImportOption {
	return func(o *importOptions) { o.afterEvent = true }
}

// named is the place with the device that WithDevice named, if it did.
func (o *importOptions) named(at tree.Location) tree.Location {
	if o.dev != nil && o.dev.ID().Type == at.ID.Type {
		at.Dev = o.dev
	}
	return at
}

// awaitBeforeRelease opens the event that WithReleaseAfterEvent is to wait for, if there is one.
func (o *importOptions) awaitBeforeRelease(mem *tree.Owner, at tree.Location) (err error) {
	if !o.afterEvent || at.Event == 0 {
		return nil
	}
	if mem.Event, err = at.OpenEvent(); err != nil {
		return noBackend(at, "WithReleaseAfterEvent", err)
	}
	return nil
}

// assumeHostReadable returns the place as WithCPUAccessible declares it.
func (o *importOptions) assumeHostReadable(mem *tree.Owner, at tree.Location, nodes []tree.Node) (tree.Location, error) {
	if !o.hostReadable || at.ID.Type == device.CPU {
		return at, nil
	}
	if at.Event != 0 {
		event, err := at.OpenEvent()
		if err != nil {
			return at, noBackend(at, "WithCPUAccessible", err)
		}
		tree.CloseEvent(event)
	}
	if !at.ID.Type.CPUAccessible() {
		mem.ReplaceNulls(nodes)
	}
	at.Assumed = true
	return at, nil
}

// noBackend is the error for an event that cannot be waited for.
func noBackend(at tree.Location, option string, err error) error {
	return fielderr.New(fielderr.OpImport, "ArrowDeviceArray.sync_event", fielderr.Hex(at.Event), "NULL, or a device that can wait for it ("+option+")", err)
}

// WithReleaser runs the producer's release callback through f, which calls release
// once, at any time and on any thread; calls after the first do nothing. It is for producers
// that ask for more than the specification does. [WithGIL] is one such f. It holds for
// Input that is refused, too: the caller's struct is marked released when the import returns, whenever f releases.
func WithReleaser(f func(release func())) ImportOption {
	return func(o *importOptions) {
		o.need(fielderr.OpImport, "WithReleaser", f, "a function")
		if f != nil {
			o.releaseWith = func(release func()) { f(once(release)) }
		}
	}
}

// once returns f for one call: later ones do nothing, and do not wait for the first, which may
// be under way on the same thread.
func once(f func()) func() {
	var called atomic.Bool
	return func() {
		if !called.Swap(true) {
			f()
		}
	}
}

// WithGIL runs the producer's release callback while its thread holds Python's
// global interpreter lock, if there is a Python in this process: pylibcudf's callback
// drops a Python reference without taking it. A thread that holds the lock must not wait
// for the release.
func WithGIL() ImportOption { return WithReleaser(bridge.WithGIL) }
