package cdevice

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// place is where the memory of a batch lives, and when it may be read.
type place struct {
	id device.ID
	// dev is the device that Wrap was given; nil for an import, whose device the
	// registry has, or nobody.
	dev device.Device
	// event is ArrowDeviceArray.sync_event as it was imported: the address of the
	// producer's event, valid while the owner lives. Zero: the data is ready.
	event uintptr
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

// waitOn makes work on s from now on wait for the event.
func (p place) waitOn(s device.Stream) error {
	if p.event == 0 {
		return nil
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
		return 0, invalid(opRead, "ArrowDeviceArray.sync_event", hex(event), "the address of an event")
	}
	return *abi.At[uintptr](event), nil
}

// hostReadable says whether the host can read memory at this place: by the
// meaning of its type, or because a backend says so.
func (p place) hostReadable() bool {
	if p.id.Type.HostReadable() {
		return true
	}
	dev, err := p.device()
	return err == nil && dev.HostReadable()
}
