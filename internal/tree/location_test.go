package tree

import (
	"context"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

var cell uintptr = 0xabc // not on a stack, which may move

// The specification's table of event types: cudaEvent_t* points to a handle,
// MTLEvent* and sycl::event* are the event.
func TestEventHandle(t *testing.T) {
	event := uintptr(unsafe.Pointer(&cell))
	for _, row := range []struct {
		t    device.Type
		want uintptr
	}{
		{device.CUDA, cell}, {device.CUDAHost, cell}, {device.CUDAManaged, cell}, {device.ROCM, cell},
		{device.ROCMHost, cell}, {device.OpenCL, cell}, {device.Vulkan, cell}, {device.ExtDev, cell},
		{device.Metal, event}, {device.OneAPI, event},
	} {
		got, err := eventHandle(row.t, event)
		assert.NoError(t, err)
		assert.Equal(t, row.want, got, row.t)
	}
	_, err := eventHandle(device.ROCM, event+1)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}

// counting is a device that counts the events and streams that are open. Its events are complete.
type counting struct {
	device.Device
	open int
}

type counted struct {
	device.Stream // of streams
	of            *counting
}

type countedEvent struct{ counted }

func (c *counting) ID() device.ID { return device.ID{Type: device.ExtDev} }
func (c *counting) WrapEvent(uintptr) (device.Event, error) {
	c.open++
	return countedEvent{counted{of: c}}, nil
}
func (c *counting) WrapStream(uintptr) (device.Stream, error) { c.open++; return counted{of: c}, nil }

func (c counted) Handle() uintptr              { return 0 }
func (c counted) Device() device.Device        { return c.of }
func (c counted) WaitEvent(device.Event) error { return nil }
func (c counted) Close() error                 { c.of.open--; return nil }

func (e countedEvent) Query() (bool, error)              { return true, nil }
func (e countedEvent) Synchronize(context.Context) error { return nil }
func (e countedEvent) OnComplete(f func())               { f() }

// Each function closes the events and streams that it opens.
func TestNothingIsLeftOpen(t *testing.T) {
	dev := &counting{Device: device.CPUDevice()}
	at := Location{ID: dev.ID(), Dev: dev, Event: uintptr(unsafe.Pointer(&cell))}
	for name, do := range map[string]func() error{
		"Synchronize": func() error { return at.Synchronize(context.Background()) },
		"Ready":       func() error { _, err := at.Ready(); return err },
		"WaitOn":      func() error { return at.WaitOn(counted{of: dev}) },
		"CheckStream": func() error { return at.CheckStream("op", "stream", counted{of: dev}) },
		"Release": func() error {
			m := Own(new(releases))
			var err error
			m.Event, err = at.OpenEvent()
			m.Release()
			return err
		},
	} {
		assert.NoError(t, do(), name)
		assert.Zero(t, dev.open, name)
	}
}
