package cdevice

import (
	"context"
	"fmt"
	"reflect"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// place is where the memory of a batch lives, and when it may be read.
type place struct {
	id device.ID
	// dev is the device that WrapRecordBatch was given; nil for an import, whose device the
	// registry has, or nobody.
	dev device.Device
	// event is ArrowDeviceArray.sync_event as it was imported: the address of the
	// producer's event, valid while the owner lives. Zero: the data is ready.
	event uintptr
	// assumed reports that the host can read the memory of any device: WithCPUAccessible.
	assumed bool
}

func (p place) device() (device.Device, error) {
	if p.dev != nil {
		return p.dev, nil
	}
	return device.Open(p.id)
}

// wait returns when the event is complete; at once, if there is none.
func (p place) wait(ctx context.Context) error {
	if p.event == 0 {
		return nil
	}
	if err := p.waitEvent(ctx); err != nil {
		return fmt.Errorf("cdevice: wait for sync_event: %w", err)
	}
	return nil
}

// ready reports whether the event is complete, or there is none.
func (p place) ready() (bool, error) {
	if p.event == 0 {
		return true, nil
	}
	event, err := p.openEvent()
	if err != nil {
		return false, fmt.Errorf("cdevice: sync_event: %w", err)
	}
	defer event.Close() // borrowed
	return event.Query()
}

// waitOn makes work on s from now on wait for the event. s may be of another device, which
// can wait for the event: of another GPU of the same driver.
func (p place) waitOn(s device.Stream) error {
	if p.event == 0 {
		return nil
	}
	if of := s.Device(); of == nil || streamType(of.ID().Type) != streamType(p.id.Type) {
		return fielderr.Invalid(fielderr.OpRead, "stream", describeStream(of), "a stream that can wait for an event of "+p.id.String())
	}
	event, err := p.openEvent()
	if err != nil {
		return err
	}
	defer event.Close() // borrowed
	if err := s.WaitEvent(event); err != nil {
		return fmt.Errorf("cdevice: wait for sync_event: %w", err)
	}
	return nil
}

// openEvent borrows the event.
func (p place) openEvent() (device.Event, error) {
	dev, err := p.device()
	if err != nil {
		return nil, err
	}
	handle, err := eventHandle(p.id.Type, p.event)
	if err != nil {
		return nil, err
	}
	return dev.WrapEvent(handle)
}

func (p place) waitEvent(ctx context.Context) error {
	event, err := p.openEvent()
	if err != nil {
		return err
	}
	defer event.Close()
	return event.Synchronize(ctx)
}

// eventHandle is the native handle of a sync_event. The specification's event
// types are pointers to the handle, where the handle itself is not a pointer to
// an object already.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#synchronization-event-types
func eventHandle(t device.Type, event uintptr) (uintptr, error) {
	switch t {
	case device.Metal, device.OneAPI: // MTLEvent*, sycl::event*
		return event, nil
	}
	if event%sizeofPointer != 0 {
		return 0, fielderr.Invalid(fielderr.OpRead, "ArrowDeviceArray.sync_event", fielderr.Hex(event), "the address of an event")
	}
	return *abi.At[uintptr](event), nil
}

// hostReadable reports whether the host can read memory at this place: by the
// meaning of its type, or because a backend or the importer says so. Of managed memory the backend is
// asked first: on some machines the host must not touch it while the device works.
func (p place) hostReadable() bool {
	readable := p.id.Type.CPUAccessible()
	if p.assumed || readable && p.id.Type != device.CUDAManaged {
		return true
	}
	if dev, err := p.device(); err == nil {
		return dev.CPUAccessible()
	}
	return readable
}

// notReadable is why the host cannot read memory at this place.
func (p place) notReadable() string {
	if p.id.Type.CPUAccessible() {
		return fmt.Sprintf("the CPU must not touch memory of %s while the device works, on this machine", p.id)
	}
	return fmt.Sprintf("the CPU cannot access memory of %s", p.id)
}

// checkStream returns an error unless s is a stream of the device that the memory lives on:
// work on another device's stream is not ordered with the event, or cannot be. name is the
// argument.
func (p place) checkStream(op, name string, s device.Stream) error {
	if isNil(s) {
		return fielderr.Invalid(op, name, "nil", "a stream of "+p.id.String())
	}
	if of := s.Device(); of == nil || !p.hasStream(s, of) {
		return fielderr.Invalid(op, name, describeStream(of), "a stream of "+p.id.String())
	}
	return nil
}

// hasStream reports whether s, a stream of the device of, is one of the memory's device. Two
// drivers have devices of the same ID: so the memory's device is asked whose its streams are,
// where it can be opened. Memory without an ordinal belongs to no device more than to others.
func (p place) hasStream(s device.Stream, of device.Device) bool {
	id := of.ID()
	if p.id.Ordinal == device.NoOrdinal {
		return streamType(id.Type) == streamType(p.id.Type)
	}
	if dev, err := p.device(); err == nil {
		if own, err := dev.WrapStream(s.Handle()); err == nil {
			defer own.Close() // borrowed
			return reflect.TypeOf(of).Comparable() && own.Device() == of
		}
	}
	return streamType(id.Type) == streamType(p.id.Type) && id.Ordinal == p.id.Ordinal
}

// streamType is the type of the device that streams belong to: a GPU's page-locked and
// managed memory is used on the streams of the GPU.
func streamType(t device.Type) device.Type {
	switch t {
	case device.CUDAHost, device.CUDAManaged:
		return device.CUDA
	case device.ROCMHost:
		return device.ROCM
	}
	return t
}

func describeStream(of device.Device) string {
	if of == nil {
		return "a stream of no device"
	}
	return "a stream of " + of.ID().String()
}

// checkOnStream checks the stream that WithStream names, if it does, for a copy that the
// device at makes, or the device from that it copies out of, if that is of the same type:
// a GPU copies on the streams of another one too.
func checkOnStream(opts []CopyOption, at, from place) error {
	if err := checkCopyOptions(opts); err != nil {
		return err
	}
	s := streamOf(opts)
	if s == nil {
		return nil
	}
	err := at.checkStream(fielderr.OpCopy, "WithStream", s)
	if err != nil && streamType(from.id.Type) == streamType(at.id.Type) && from.checkStream(fielderr.OpCopy, "WithStream", s) == nil {
		return nil
	}
	return err
}
