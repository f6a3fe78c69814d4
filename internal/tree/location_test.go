package tree

import (
	"context"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
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
			event, err := at.OpenEvent()
			m.ReleaseAfter(event)
			m.Release()
			return err
		},
	} {
		assert.NoError(t, do(), name)
		assert.Zero(t, dev.open, name)
	}
}

// of is a stream or an event of a device, which may be nil.
type of struct {
	device.Stream
	dev device.Device
}

func (o of) Handle() uintptr       { return 0 }
func (o of) Device() device.Device { return o.dev }

type eventOf struct {
	device.Event
	dev device.Device
}

func (e eventOf) Device() device.Device { return e.dev }

// named is a device with another ID, whose streams cannot be wrapped.
type named struct {
	device.Device
	id device.ID
}

func (n named) ID() device.ID                             { return n.id }
func (n named) WrapStream(uintptr) (device.Stream, error) { return nil, device.ErrNotSupported }
func (n named) CPUAccessible() bool                       { return false }

// Streams and events are those of the device of the memory: pinned and managed memory of a GPU has those of the GPU, and
// memory without an ordinal those of every GPU. The error names both devices.
func TestStreamsAndEventsOfOtherDevices(t *testing.T) {
	gpu := func(ordinal int64) device.Device {
		return named{device.CPUDevice(), device.ID{Type: device.CUDA, Ordinal: ordinal}}
	}
	pinned := named{device.CPUDevice(), device.ID{Type: device.CUDAHost, Ordinal: 1}}
	unknown := named{device.CPUDevice(), device.ID{Type: device.CUDAHost, Ordinal: device.NoOrdinal}}
	for _, row := range []struct {
		memory, of device.Device
		stream     string // the error; "": none
		event      string
	}{
		{gpu(1), gpu(1), "", ""},
		{pinned, gpu(1), "", ""},
		{unknown, gpu(3), "", ""},
		{gpu(1), gpu(0), "x = a stream of cuda:0, want a stream of cuda:1", "x = an event of cuda:0, want an event of cuda:1"},
		{pinned, gpu(0), "x = a stream of cuda:0, want a stream of cuda_host:1", "x = an event of cuda:0, want an event of cuda_host:1"},
		{gpu(1), nil, "x = a stream of no device", "x = an event of no device"},
		{gpu(1), device.CPUDevice(), "x = a stream of cpu", ""},
	} {
		at := Location{ID: row.memory.ID(), Dev: row.memory}
		for i, err := range []error{at.CheckStream("op", "x", of{dev: row.of}), at.CheckEvent("op", "x", eventOf{dev: row.of})} {
			if want := []string{row.stream, row.event}[i]; want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, "cdevice: op: "+want)
				assert.ErrorIs(t, err, arrow.ErrInvalid)
			}
		}
	}
	at := Location{ID: gpu(1).ID(), Dev: gpu(1), Event: uintptr(unsafe.Pointer(&cell))}
	assert.ErrorContains(t, at.CheckStream("op", "x", nil), "x = nil, want a stream of cuda:1")
	assert.ErrorContains(t, fielderr.During(fielderr.OpWaitOn, at.WaitOn(of{dev: device.CPUDevice()})),
		"cdevice: wait on: stream = a stream of cpu, want a stream that can wait for an event of cuda:1")
	assert.ErrorContains(t, at.CheckStream(fielderr.OpRecord, "stream", of{}), "cdevice: record event: stream = a stream of no device")
	assert.False(t, at.CPUAccessible())
	assert.EqualError(t, at.NotAccessible("CopyToHost copies it"), "the CPU cannot access memory of cuda:1: CopyToHost copies it: not supported")
	managed := Location{ID: device.ID{Type: device.CUDAManaged}, Dev: gpu(0)}
	assert.False(t, managed.CPUAccessible(), "the backend decides")
	assert.ErrorContains(t, managed.NotAccessible("CopyToHost copies it"), "the CPU must not touch memory of cuda_managed:0 while the device works")
	assert.True(t, Location{ID: managed.ID, Assumed: true}.CPUAccessible())
	assert.True(t, Location{ID: device.ID{Type: device.CUDAHost}}.CPUAccessible())
	CloseEvent(nil)
	CloseEvent((*countedEvent)(nil))
}

// Memory of several owners lives until the last of its references, and is that of one owner if there is but one.
func TestJoinedOwners(t *testing.T) {
	a, b := new(releases), new(releases)
	owners := []*Owner{Own(a), Own(b)}
	joined := Join([]*Owner{owners[0], owners[1], owners[0]}, nil)
	assert.Same(t, owners[0], Join([]*Owner{owners[0], owners[0]}, nil))
	owners[0].Release()
	owners[0].Release()
	owners[1].Release()
	assert.Equal(t, []int{0, 0}, []int{a.n, b.n})
	joined.Release()
	assert.Equal(t, []int{1, 1}, []int{a.n, b.n})
}
