package cudaalloc

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/arrowdevice/arrowdevice/device"
)

var errNoStream = errors.New("cuda: stream = nil, want a stream")

// absent is the error for an argument that is nil.
func absent(call, argument, want string) error {
	return fmt.Errorf("cuda: %s: %s = nil, want %s", call, argument, want)
}

// checkContext returns an error for a context that is nil.
func checkContext(call string, ctx context.Context) error {
	if ctx == nil {
		return absent(call, "ctx", "a context")
	}
	return nil
}

// isNilPointer sees a nil pointer in an interface that is not nil.
func isNilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// foreign is the error for an argument that belongs to another device than d.
func (d *Device) foreign(argument string, of device.Device) error {
	owner := "no device"
	if of != nil {
		owner = of.ID().String()
	}
	if other, ok := of.(*Device); ok && other.platform != d.platform {
		owner += " of another driver"
	}
	return fmt.Errorf("cuda: %s of %s, want one of %s", argument, owner, d.ID())
}

// eventFor is the CUevent that a stream is to record or wait for. An event of the CPU has
// no handle, and one of another driver has a handle that means nothing here.
func (s *Stream) eventFor(e device.Event) (uintptr, error) {
	if s == nil {
		return 0, errNoStream
	}
	h, err := eventHandle(e)
	if err != nil {
		return 0, err
	}
	if h == 0 {
		return 0, fmt.Errorf("cuda: event without a handle, such as the CPU's, want one of %s", s.gpu.own.ID())
	}
	if own, ok := e.(*Event); ok && own.gpu.platform != s.gpu.platform {
		return 0, s.gpu.own.foreign("event", own.gpu.own)
	}
	return h, s.usable()
}
