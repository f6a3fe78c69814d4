package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// The devices that structs of these tests claim to be on. Only extDev is registered.
var (
	extDev = device.ID{Type: device.ExtDev, Ordinal: 0}
	cuda   = device.ID{Type: device.CUDA, Ordinal: 3}
	pinned = device.ID{Type: device.CUDAHost, Ordinal: -1}
)

// eventDevice is host memory whose events the test completes: exports and views must wait for them.
// It is registered for the extension type.
type eventDevice struct{ device.Device }

func (eventDevice) ID() device.ID       { return device.ID{Type: device.ExtDev, Ordinal: 0} }
func (eventDevice) CPUAccessible() bool { return true }

func (eventDevice) WrapEvent(handle uintptr) (device.Event, error) {
	return testEvents[handle], nil
}

// testEvent counts its waits, and fails with err.
type testEvent struct {
	waits, closes int
	err           error
}

func (*testEvent) Handle() uintptr                     { return 0 }
func (*testEvent) Device() device.Device               { return eventDevice{device.CPUDevice()} }
func (*testEvent) Query() (bool, error)                { return true, nil }
func (e *testEvent) Synchronize(context.Context) error { e.waits++; return e.err }
func (e *testEvent) Close() error                      { e.closes++; return nil }
func (*testEvent) OnComplete(f func())                 { f() }

// testEvents maps native handles to events.
var testEvents = map[uintptr]*testEvent{}

func init() {
	device.Register(device.ExtDev, func(ordinal int64) (device.Device, error) {
		if ordinal != 0 {
			return nil, device.ErrNotSupported
		}
		return eventDevice{device.CPUDevice()}, nil
	})
}

var stuck = device.ID{Type: device.OneAPI, Ordinal: 77} // other tests know of no such device

// stuckDevice has one: it is registered for OneAPI, whose events are no handles.
type stuckDevice struct{ device.Device }

func (stuckDevice) ID() device.ID                           { return stuck }
func (stuckDevice) CPUAccessible() bool                     { return true }
func (stuckDevice) WrapEvent(uintptr) (device.Event, error) { return stuckEvent{new(testEvent)}, nil }

// stuckEvent never completes.
type stuckEvent struct{ *testEvent }

func (e stuckEvent) Synchronize(ctx context.Context) error {
	e.waits++
	<-ctx.Done()
	return ctx.Err()
}

func init() {
	device.Register(device.OneAPI, func(ordinal int64) (device.Device, error) {
		switch ordinal {
		case stuck.Ordinal:
			return stuckDevice{device.CPUDevice()}, nil
		case waitPanics.Ordinal:
			return panickingWaits{device.CPUDevice()}, nil
		}
		return nil, device.ErrNotSupported
	})
}

// panickingWaits has one; see stuckDevice.
type panickingWaits struct{ device.Device }

func (panickingWaits) ID() device.ID       { return waitPanics }
func (panickingWaits) CPUAccessible() bool { return true }

func (panickingWaits) WrapEvent(uintptr) (device.Event, error) {
	return panickingEvent{new(testEvent)}, nil
}

var waitPanics = device.ID{Type: device.OneAPI, Ordinal: 78}

// panickingEvent is one whose wait panics.
type panickingEvent struct{ *testEvent }

func (panickingEvent) Synchronize(context.Context) error { panic(errSource) }

// gpuOnly is a device whose memory the CPU cannot read.
type gpuOnly struct{ device.Device }

func (gpuOnly) ID() device.ID       { return cuda }
func (gpuOnly) CPUAccessible() bool { return false }

// slowDevice is a device whose events and streams take their time: each call reports that
// it has begun, and goes on when it may.
type slowDevice struct {
	device.Device
	begun, goOn chan struct{}
}

func (slowDevice) ID() device.ID                             { return extDev }
func (slowDevice) CPUAccessible() bool                       { return true }
func (d slowDevice) WrapEvent(uintptr) (device.Event, error) { return slowEvent{d: d}, nil }

// slowEvent is an event of slowDevice.
type slowEvent struct {
	device.Event
	d slowDevice
}

func (e slowEvent) wait() {
	e.d.begun <- struct{}{}
	<-e.d.goOn
}

func (slowEvent) Close() error                        { return nil }
func (e slowEvent) Query() (bool, error)              { e.wait(); return true, nil }
func (e slowEvent) Synchronize(context.Context) error { e.wait(); return nil }

// slowStream is a stream of slowDevice.
type slowStream struct {
	device.Stream
	d slowDevice
}

func (s slowStream) Device() device.Device          { return s.d }
func (s slowStream) WaitEvent(e device.Event) error { e.(slowEvent).wait(); return nil }

// coreDevice is a GPU without the optional interfaces of package device: a copy then works with
// device.Device alone.
type coreDevice struct{ device.Device }

// waitCounting counts how often the work of a device is waited for before a release.
type waitCounting struct {
	*cudaalloc.Device
	waits *int
}

func (d waitCounting) AfterWork(f func()) {
	*d.waits++
	d.Device.AfterWork(f)
}

// deviceWithEvents is a device whose events have names.
type deviceWithEvents struct {
	device.Device
	event *namedEvent
}

func (d deviceWithEvents) NewEvent() (device.Event, error) { return d.event, nil }

// streamWithEvents is a stream of a device whose events have handles, so that WithEvent
// keeps one.
type streamWithEvents struct {
	device.Stream
	event *namedEvent
}

func (s streamWithEvents) Device() device.Device {
	return deviceWithEvents{device.CPUDevice(), s.event}
}

func (streamWithEvents) Record(device.Event) error { return nil }

// namedEvent is an event of deviceWithEvents.
type namedEvent struct{ testEvent }

func (*namedEvent) Handle() uintptr { return 8 }

// onDevice imports an int32 array [1, 2] that claims to live on a device, with
// an event. The event cell is returned; it must stay alive as long as the array.
func onDevice(t *testing.T, id device.ID, handle uintptr, opts ...cdevice.ImportOption) (*cdevice.Array, *uintptr) {
	t.Helper()
	a, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`), device.CPUDevice())
	require.NoError(t, err)
	out := new(cdevice.CArrowDeviceArray)
	require.NoError(t, cdevice.ExportArray(a, out, nil))
	a.Release()
	cell := &handle
	out.DeviceType, out.DeviceID, out.SyncEvent = int32(id.Type), id.Ordinal, addressOf(cell)
	if handle == 0 {
		out.SyncEvent = 0
	}
	back, err := cdevice.ImportArrayWithType(out, arrow.PrimitiveTypes.Int32, opts...)
	require.NoError(t, err)
	return back, cell
}

// batchOnDevice imports a batch [1, 2] that claims to live on a device; see onDevice.
func batchOnDevice(t *testing.T, id device.ID, handle uintptr, opts ...cdevice.ImportOption) *cdevice.RecordBatch {
	t.Helper()
	rec := oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`))
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	out := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	b.Release()
	cell := &handle
	out.DeviceType, out.DeviceID, out.SyncEvent = int32(id.Type), id.Ordinal, addressOf(cell)
	t.Cleanup(func() { _ = *cell })
	if handle == 0 {
		out.SyncEvent = 0
	}
	back, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema(), opts...)
	require.NoError(t, err)
	return back
}
