package cudaalloc

import (
	"context"
	"errors"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
)

// Event is a CUevent: a device.Event. It has no timing. A wait for it polls the driver for 100
// microseconds before it blocks there, and then sleeps.
type Event struct {
	handle gpu.Handle
	dev    *Device // the GPU
}

func (d *Device) newEvent() *Event { return &Event{dev: d.Own()} }

// NewEvent returns an owned event from the free list, or a new one. Those on the list
// are complete, which to the driver is the same as never recorded.
func (d *Device) NewEvent() (device.Event, error) {
	e := d.newEvent()
	if err := d.gpu.Events.New(&e.handle); err != nil {
		return nil, err
	}
	return e, nil
}

// WrapEvent borrows a CUevent (or cudaEvent_t) that another library owns, and that lives for
// as long as it is used here.
func (d *Device) WrapEvent(handle uintptr) (device.Event, error) {
	if handle == 0 {
		return nil, errNoEvent
	}
	e := d.newEvent()
	d.gpu.Events.Borrow(&e.handle, handle)
	return e, nil
}

// Handle returns the CUevent.
func (e *Event) Handle() uintptr { return e.handle.Word() }

// Device returns the GPU that the event was made for.
func (e *Event) Device() device.Device { return e.dev }

// Query reports whether the work before the latest Record has completed. It does not wait.
func (e *Event) Query() (bool, error) { return e.handle.QueryEvent() }

// Synchronize waits until the latest recorded point is reached, or ctx is done; see
// [Stream.Synchronize].
func (e *Event) Synchronize(ctx context.Context) error {
	if err := argument.Context("cuda: synchronize", ctx); err != nil {
		return err
	}
	return e.handle.SynchronizeEvent(ctx)
}

// OnComplete calls f when the latest recorded point is reached: on this goroutine, if it
// is already, or later on one of this package. See [Device.AfterWork] for what f may do. An
// event of another owner must live until then. Where the event is closed, or the driver cannot
// be asked about it, f is called after all work of the GPU. A nil f panics.
func (e *Event) OnComplete(f func()) {
	if f == nil {
		panic(argument.Nil("cuda: OnComplete", "f", "a function"))
	}
	e.handle.Defer(gpu.Call(f))
}

// Close ends an owned event once no wait uses it; it does not wait for that. A borrowed one is left to its
// owner, and can no longer be used through this value. Closing twice is allowed; every other use is an error
// that wraps [ErrClosed]. Where the driver fails, the error is returned, and the event is ended later.
func (e *Event) Close() error { return e.handle.Close() }

// Closed reports whether Close was called.
func (e *Event) Closed() bool { return e.handle.Usable() != nil }

var (
	errNoEvent      = argument.Nil("cuda", "event", "an event: no event has the handle NULL")
	errForeignEvent = errors.New("it is no event of CUDA")
)

// await is evidence of an event that may be of another implementation, or closed.
func await(e device.Event) (gpu.Evidence, error) {
	own, ok := e.(*Event)
	if !ok {
		return nil, errForeignEvent
	}
	if own == nil {
		return nil, errNoEvent
	}
	return own.handle.Await()
}

// eventHandle is the CUevent of an event that may be of another implementation.
func eventHandle(e device.Event) (uintptr, error) {
	if own, ok := e.(*Event); ok && own != nil {
		return own.Handle(), own.handle.Usable()
	}
	if argument.IsNil(e) {
		return 0, errNoEvent
	}
	return e.Handle(), nil
}
