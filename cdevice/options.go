package cdevice

import (
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ImportOption is an option of an import. A nil option, or one that is given a nil argument, is an error
// of the function that it is passed to.
type ImportOption func(*importOptions)

type importOptions struct {
	nilOption
	dev         device.Device
	releaseWith func(release func())

	cpuAccessible bool // WithCPUAccessible
	afterEvent    bool // WithReleaseAfterEvent
	likeArrowGo   bool // forcdata.LikeArrowGo
}

// schema imports the schema of a stream.
func (o *importOptions) schema(s *abi.ArrowSchema) (*arrow.Schema, error) {
	if o.likeArrowGo {
		return schema.ImportSchemaAsStorage(s)
	}
	return schema.ImportSchema(s)
}

// changeNothing reports whether an import is the same without the options.
func (o *importOptions) changeNothing() bool {
	return o.err == nil && o.dev == nil && o.releaseWith == nil && !o.cpuAccessible && !o.afterEvent
}

// release calls a release callback, through the function of WithReleaser if there is one.
func (o *importOptions) release(callback func()) {
	if o.releaseWith == nil {
		callback()
	} else {
		o.releaseWith(callback)
	}
}

// discard releases an array that is not imported. The struct is moved first: WithReleaser may
// call the release callback after the caller has reused the memory of the struct.
func (o *importOptions) discard(in *cstruct.Input) {
	if in.Array == nil || in.Array.Release == 0 {
		return
	}
	mem := tree.Adopt(in.Array)
	mem.ReleaseWith = o.releaseWith
	var at tree.Location
	in.Locate(&at)
	o.name(&at)
	_ = o.awaitBeforeRelease(mem, &at) // without a backend for the event, release at once
	mem.Release()
}

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
			o.discard(in)
		}
	}()
	apply(fielderr.OpImport, o, &o.nilOption, opts)
	done = true
	return o
}

// WithDevice names the opened device that the memory is on, instead of the one that device.Open returns
// for the declared type and ID: for a device that was opened with options of its own. A device of
// another type, or with another ID, is an error.
func WithDevice(dev device.Device) ImportOption {
	return func(o *importOptions) {
		o.need(fielderr.OpImport, "WithDevice", dev, "a device")
		if !argument.IsNil(dev) {
			o.dev = dev
		}
	}
}

// deviceFor returns the device that WithDevice named, if it fits the declared ID. Some producers
// declare no device number for pinned and managed memory.
func (o *importOptions) deviceFor(declared device.ID, names *cstruct.StructNames) (device.Device, error) {
	id := o.dev.ID()
	if names == cstruct.PlainNames {
		return o.dev, o.checkPlain()
	}
	if id.Type != declared.Type {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_type", int32(declared.Type), fmt.Sprintf("%d, that of the device of WithDevice", int32(id.Type)))
	}
	if id.Ordinal != declared.Ordinal && (declared.Ordinal != device.NoOrdinal || !id.Type.CPUAccessible()) {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_id", declared.Ordinal, fmt.Sprintf("%d, that of the device of WithDevice", id.Ordinal))
	}
	return o.dev, nil
}

// checkPlain returns an error if an option does not fit structs without a device.
func (o *importOptions) checkPlain() error {
	if o.dev != nil && o.dev.ID().Type != device.CPU {
		return fielderr.Invalid(fielderr.OpImport, "WithDevice", o.dev.ID().String(), "the CPU, where the memory of an ArrowArray is")
	}
	return nil
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
	return func(o *importOptions) { o.cpuAccessible = true }
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
	return func(o *importOptions) { o.afterEvent = true }
}

// name sets the device of a location to that of WithDevice, if that option was given.
func (o *importOptions) name(at *tree.Location) {
	if o.dev != nil && o.dev.ID().Type == at.ID.Type {
		at.Dev = o.dev
	}
}

// awaitBeforeRelease opens the event that the release must wait for, if WithReleaseAfterEvent was
// given.
func (o *importOptions) awaitBeforeRelease(mem *tree.Owner, at *tree.Location) (err error) {
	if !o.afterEvent || at.Event == 0 {
		return nil
	}
	if mem.Event, err = at.OpenEvent(); err != nil {
		return noBackend(at, "WithReleaseAfterEvent", err)
	}
	return nil
}

// assumeCPUAccessible changes the location to what WithCPUAccessible declares.
func (o *importOptions) assumeCPUAccessible(at *tree.Location) error {
	if !o.cpuAccessible || at.ID.Type == device.CPU {
		return nil
	}
	if at.Event != 0 {
		event, err := at.OpenEvent()
		if err != nil {
			return noBackend(at, "WithCPUAccessible", err)
		}
		tree.CloseEvent(event)
	}
	at.Assumed = true
	return nil
}

// noBackend is the error for an event that cannot be waited for.
func noBackend(at *tree.Location, option string, err error) error {
	return fielderr.New(fielderr.OpImport, "ArrowDeviceArray.sync_event", fielderr.Hex(at.Event), "NULL, or a device that can wait for it ("+option+")", err)
}

// WithReleaser passes the producer's release callback to f as release, which f calls once, at any time
// and on any thread; later calls do nothing. It is for producers that require more of their caller than
// the specification does; [WithGIL] is one such f. It also applies to an array that the import refuses.
// The caller's struct is marked released when the import returns, even if f calls release later.
func WithReleaser(f func(release func())) ImportOption {
	return func(o *importOptions) {
		o.need(fielderr.OpImport, "WithReleaser", f, "a function")
		if f != nil {
			o.releaseWith = func(release func()) { f(once(release)) }
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
