package tree

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Location is the device of the memory of a batch, and the event after which it may be read.
type Location struct {
	ID device.ID
	// Dev is the device that WrapRecordBatch was given; nil for an import, whose device is opened
	// by its ID, if a backend is registered.
	Dev device.Device
	// Event is ArrowDeviceArray.sync_event as it was imported: the address of the
	// producer's event, valid while the owner lives. Zero: the data is ready.
	Event uintptr
	// Assumed is true if WithCPUAccessible declared, or ForCPU found, that the CPU can access the memory.
	Assumed bool
}

// Device returns Dev, or opens the device of the ID.
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

// WaitOn makes work enqueued on s from now on wait for the event. s may be of another device that
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

// OpenEvent returns the event, which stays the producer's.
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

// eventHandle returns the native handle of a sync_event. The specification's event types are
// pointers to the handle, unless the handle itself is a pointer to an object.
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

// CPUAccessible reports whether the CPU can access the memory: by the device type, by the backend,
// or by WithCPUAccessible. For managed memory the backend is asked first: on some machines the CPU
// must not access it while the device works.
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

// NotAccessible returns the error that the CPU cannot access the memory. instead names the functions that copy it.
func (p Location) NotAccessible(instead string) error {
	reason := fmt.Sprintf("the CPU cannot access memory of %s", p.ID)
	if p.ID.Type.CPUAccessible() {
		reason = fmt.Sprintf("the CPU must not touch memory of %s while the device works, on this machine", p.ID)
	}
	return fmt.Errorf("%s: %s: %w", reason, instead, device.ErrNotSupported)
}

// CheckStream returns an error unless s is a stream of the device that the memory is on: work on
// another device's stream cannot be ordered with the event. name is that of the argument.
func (p Location) CheckStream(op, name string, s device.Stream) error {
	if argument.IsNil(s) {
		return fielderr.Invalid(op, name, "nil", "a stream of "+p.ID.String())
	}
	if of := s.Device(); of == nil || !p.hasStream(s, of) {
		return fielderr.Invalid(op, name, DescribeStream(of), "a stream of "+p.ID.String())
	}
	return nil
}

// hasStream reports whether s, a stream of the device of, is one of the memory's device. Devices of
// two drivers can have the same ID, so the memory's device decides, if it can be opened and the memory has an ordinal.
func (p Location) hasStream(s device.Stream, of device.Device) bool {
	if p.ID.Ordinal == device.NoOrdinal {
		return p.sharesStreams(of.ID())
	}
	if dev, err := p.Device(); err == nil {
		if own, err := dev.WrapStream(s.Handle()); err == nil {
			defer own.Close() // borrowed
			return reflect.TypeOf(of).Comparable() && own.Device() == of
		}
	}
	return p.sharesStreams(of.ID())
}

// StreamType returns the type of the device whose streams are used with memory of a type: pinned
// and managed memory of a GPU is used on the GPU's streams.
func StreamType(t device.Type) device.Type {
	switch t {
	case device.CUDAHost, device.CUDAManaged:
		return device.CUDA
	case device.ROCMHost:
		return device.ROCM
	}
	return t
}

// CheckEvent returns an error unless e, which is not nil, completes with work of the device that the memory is on, or
// is an event of the CPU, whose work completes at once. name is that of the argument.
func (p Location) CheckEvent(op, name string, e device.Event) error {
	of := e.Device()
	if argument.IsNil(of) {
		return fielderr.Invalid(op, name, "an event of no device", "an event of "+p.ID.String())
	}
	if id := of.ID(); id.Type != device.CPU && !p.sharesStreams(id) {
		return fielderr.Invalid(op, name, "an event of "+id.String(), "an event of "+p.ID.String())
	}
	if c, ok := e.(interface{ Closed() bool }); ok && c.Closed() {
		return fielderr.Invalid(op, name, "a closed event", "an event of "+p.ID.String())
	}
	return nil
}

// sharesStreams reports whether streams of a device, as far as its ID says, are used with the memory. Memory without an
// ordinal fits every device of its type.
func (p Location) sharesStreams(id device.ID) bool {
	return StreamType(id.Type) == StreamType(p.ID.Type) && (p.ID.Ordinal == device.NoOrdinal || id.Ordinal == p.ID.Ordinal)
}

// DescribeStream describes a stream of a device for an error.
func DescribeStream(of device.Device) string {
	if of == nil {
		return "a stream of no device"
	}
	return "a stream of " + of.ID().String()
}

// CloseEvent closes an event that this module owns, if it is not nil, nor a nil pointer in the interface.
func CloseEvent(e device.Event) {
	if !argument.IsNil(e) {
		_ = e.Close() // the backend tries again itself
	}
}

// Allocated reports whether size bytes at p are allocated memory of one device, of which found is the allocation at p.
// Neighbours count as well: programs map several allocations into one range (cuMemMap; PyTorch's expandable segments),
// and the driver knows the parts.
func Allocated(asked device.Prober, found device.Allocation, p device.Ptr, size int64) (bool, error) {
	id, end := found.ID, p+device.Ptr(size)
	for {
		next := found.Start + device.Ptr(found.Size)
		switch {
		case found.ID != id || p < found.Start || next <= p:
			return false, nil
		case next >= end:
			return true, nil
		}
		p = next
		var err error
		if found, err = asked.Lookup(p); err != nil {
			return false, err
		}
	}
}
