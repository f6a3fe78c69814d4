// Package importopt has the options of imports of package cdevice, and what imports do with them.
package importopt

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Options are what the functions of type cdevice.ImportOption set.
type Options struct {
	Err           error                // of the first option that is nil, or was given nil
	Device        device.Device        // WithDevice
	ReleaseWith   func(release func()) // WithReleaser
	CPUAccessible bool                 // WithCPUAccessible
	AfterEvent    bool                 // WithReleaseAfterEvent

	// LikeArrowGo is an option of package cdata. Extension types are not rebuilt, and the metadata has their names; an
	// unknown null count of a record batch is counted; a dropped asynchronous task is extracted into a struct, since
	// arrow-go's producer writes through NULL.
	LikeArrowGo bool
}

// Schema imports the schema of a stream.
func (o *Options) Schema(s *abi.ArrowSchema) (*arrow.Schema, error) {
	if o.LikeArrowGo {
		return schema.ImportSchemaAsStorage(s)
	}
	return schema.ImportSchema(s)
}

// Release calls a release callback, through the function of WithReleaser if there is one.
func (o *Options) Release(callback func()) {
	if o.ReleaseWith == nil {
		callback()
	} else {
		o.ReleaseWith(callback)
	}
}

// Discard releases an array that is not imported. The struct is moved first: WithReleaser may
// call the release callback after the caller has reused the memory of the struct.
func (o *Options) Discard(in *cstruct.Input) {
	if in.Array == nil || in.Array.Release == 0 {
		return
	}
	mem := tree.Adopt(in.Array)
	mem.ReleaseWith(o.ReleaseWith)
	var at tree.Location
	in.Locate(&at)
	o.name(&at)
	_ = o.awaitBeforeRelease(mem, &at) // without a backend for the event, release at once
	mem.Release()
}

// TakeOver applies the options to the owner of a struct, and sets *at, which is zero, to the location of
// its memory. Unless it succeeds, it releases the memory, even if code of a backend panics.
func (o *Options) TakeOver(mem *tree.Owner, in *cstruct.Input, at *tree.Location) error {
	in.Locate(at)
	if o.changeNothing() {
		return nil
	}
	mem.ReleaseWith(o.ReleaseWith)
	done := false
	defer func() {
		if !done {
			mem.Release()
		}
	}()
	if err := o.applyTo(mem, at, in.Names); err != nil {
		return err
	}
	done = true
	return nil
}

// applyTo applies the options to the memory of an import, and to its location.
func (o *Options) applyTo(mem *tree.Owner, at *tree.Location, names *cstruct.StructNames) (err error) {
	if o.Err != nil {
		return o.Err
	}
	if o.Device != nil {
		if at.Dev, err = o.deviceFor(at.ID, names); err != nil {
			return err
		}
	}
	if err := o.awaitBeforeRelease(mem, at); err != nil {
		return err
	}
	return o.assumeCPUAccessible(at)
}

// changeNothing reports whether an import is the same without the options.
func (o *Options) changeNothing() bool {
	return o.Err == nil && o.Device == nil && o.ReleaseWith == nil && !o.CPUAccessible && !o.AfterEvent
}

// deviceFor returns the device that WithDevice named, if it fits the declared ID. Some producers
// declare no device number for pinned and managed memory.
func (o *Options) deviceFor(declared device.ID, names *cstruct.StructNames) (device.Device, error) {
	id := o.Device.ID()
	if names == cstruct.PlainNames {
		return o.Device, o.CheckPlain()
	}
	if id.Type != declared.Type {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_type", int32(declared.Type), fmt.Sprintf("%d, that of the device of WithDevice", int32(id.Type)))
	}
	if id.Ordinal != declared.Ordinal && (declared.Ordinal != device.NoOrdinal || !id.Type.CPUAccessible()) {
		return nil, fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArray.device_id", declared.Ordinal, fmt.Sprintf("%d, that of the device of WithDevice", id.Ordinal))
	}
	return o.Device, nil
}

// CheckPlain returns an error if an option does not fit structs without a device.
func (o *Options) CheckPlain() error {
	if o.Device != nil && o.Device.ID().Type != device.CPU {
		return fielderr.Invalid(fielderr.OpImport, "WithDevice", o.Device.ID().String(), "the CPU, where the memory of an ArrowArray is")
	}
	return nil
}

// name sets the device of a location to that of WithDevice, if that option was given.
func (o *Options) name(at *tree.Location) {
	if o.Device != nil && o.Device.ID().Type == at.ID.Type {
		at.Dev = o.Device
	}
}

// awaitBeforeRelease opens the event that the release must wait for, if WithReleaseAfterEvent was
// given.
func (o *Options) awaitBeforeRelease(mem *tree.Owner, at *tree.Location) error {
	if !o.AfterEvent || at.Event == 0 {
		return nil
	}
	event, err := at.OpenEvent()
	if err != nil {
		return noBackend(at, "WithReleaseAfterEvent", err)
	}
	mem.ReleaseAfter(event)
	return nil
}

// assumeCPUAccessible changes the location to what WithCPUAccessible declares.
func (o *Options) assumeCPUAccessible(at *tree.Location) error {
	if !o.CPUAccessible || at.ID.Type == device.CPU {
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
