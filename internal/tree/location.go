package tree

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Location is where the memory of a batch lives, and when it may be read.
type Location struct {
	ID device.ID
	// Dev is the device that WrapRecordBatch was given; nil for an import, whose device the
	// registry has, or nobody.
	Dev device.Device
	// Event is ArrowDeviceArray.sync_event as it was imported: the address of the
	// producer's event, valid while the owner lives. Zero: the data is ready.
	Event uintptr
	// Assumed reports that the host can read the memory of any device: WithCPUAccessible.
	Assumed bool
}

func (p Location) Device() (device.Device, error) {
	if p.Dev != nil {
		return p.Dev, nil
	}
	return device.Open(p.ID)
}

// Synchronize returns when the event is complete; at once, if there is none.
func (p Location) Synchronize(ctx context.Context) error {
	if p.Event == 0 {
		return nil
	}
	if err := p.waitEvent(ctx); err != nil {
		return fmt.Errorf("cdevice: wait for sync_event: %w", err)
	}
	return nil
}

// Ready reports whether the event is complete, or there is none.
func (p Location) Ready() (bool, error) {
	if p.Event == 0 {
		return true, nil
	}
	event, err := p.OpenEvent()
	if err != nil {
		return false, fmt.Errorf("cdevice: sync_event: %w", err)
	}
	defer event.Close() // borrowed
	return event.Query()
}

// WaitOn makes work on s from now on wait for the event. s may be of another device, which
// can wait for the event: of another GPU of the same driver.
func (p Location) WaitOn(s device.Stream) error {
	if p.Event == 0 {
		return nil
	}
	if of := s.Device(); of == nil || StreamType(of.ID().Type) != StreamType(p.ID.Type) {
		return fielderr.Invalid(fielderr.OpRead, "stream", DescribeStream(of), "a stream that can wait for an event of "+p.ID.String())
	}
	event, err := p.OpenEvent()
	if err != nil {
		return err
	}
	defer event.Close() // borrowed
	if err := s.WaitEvent(event); err != nil {
		return fmt.Errorf("cdevice: wait for sync_event: %w", err)
	}
	return nil
}

// OpenEvent borrows the event.
func (p Location) OpenEvent() (device.Event, error) {
	dev, err := p.Device()
	if err != nil {
		return nil, err
	}
	handle, err := eventHandle(p.ID.Type, p.Event)
	if err != nil {
		return nil, err
	}
	return dev.WrapEvent(handle)
}

func (p Location) waitEvent(ctx context.Context) error {
	event, err := p.OpenEvent()
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
	if event%unsafe.Sizeof(uintptr(0)) != 0 {
		return 0, fielderr.Invalid(fielderr.OpRead, "ArrowDeviceArray.sync_event", fielderr.Hex(event), "the address of an event")
	}
	return *abi.At[uintptr](event), nil
}

// CPUAccessible reports whether the host can read memory at this place: by the
// meaning of its type, or because a backend or the importer says so. Of managed memory the backend is
// asked first: on some machines the host must not touch it while the device works.
func (p Location) CPUAccessible() bool {
	readable := p.ID.Type.CPUAccessible()
	if p.Assumed || readable && p.ID.Type != device.CUDAManaged {
		return true
	}
	if dev, err := p.Device(); err == nil {
		return dev.CPUAccessible()
	}
	return readable
}

// NotAccessible is why the host cannot read memory at this place.
func (p Location) NotAccessible() string {
	if p.ID.Type.CPUAccessible() {
		return fmt.Sprintf("the CPU must not touch memory of %s while the device works, on this machine", p.ID)
	}
	return fmt.Sprintf("the CPU cannot access memory of %s", p.ID)
}

// CheckStream returns an error unless s is a stream of the device that the memory lives on:
// work on another device's stream is not ordered with the event, or cannot be. name is the
// argument.
func (p Location) CheckStream(op, name string, s device.Stream) error {
	if fielderr.IsNil(s) {
		return fielderr.Invalid(op, name, "nil", "a stream of "+p.ID.String())
	}
	if of := s.Device(); of == nil || !p.hasStream(s, of) {
		return fielderr.Invalid(op, name, DescribeStream(of), "a stream of "+p.ID.String())
	}
	return nil
}

// hasStream reports whether s, a stream of the device of, is one of the memory's device. Two
// drivers have devices of the same ID: so the memory's device is asked whose its streams are,
// where it can be opened. Memory without an ordinal belongs to no device more than to others.
func (p Location) hasStream(s device.Stream, of device.Device) bool {
	id := of.ID()
	if p.ID.Ordinal == device.NoOrdinal {
		return StreamType(id.Type) == StreamType(p.ID.Type)
	}
	if dev, err := p.Device(); err == nil {
		if own, err := dev.WrapStream(s.Handle()); err == nil {
			defer own.Close() // borrowed
			return reflect.TypeOf(of).Comparable() && own.Device() == of
		}
	}
	return StreamType(id.Type) == StreamType(p.ID.Type) && id.Ordinal == p.ID.Ordinal
}

// StreamType is the type of the device that streams belong to: a GPU's page-locked and
// managed memory is used on the streams of the GPU.
func StreamType(t device.Type) device.Type {
	switch t {
	case device.CUDAHost, device.CUDAManaged:
		return device.CUDA
	case device.ROCMHost:
		return device.ROCM
	}
	return t
}

func DescribeStream(of device.Device) string {
	if of == nil {
		return "a stream of no device"
	}
	return "a stream of " + of.ID().String()
}

// CloseEvent closes an event of ours, if there is one.
func CloseEvent(e device.Event) {
	if e != nil {
		_ = e.Close() // the device tries again by itself
	}
}
