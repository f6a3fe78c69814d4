package cdevice_test

import (
	"context"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

func TestImportAndReexportWaitForNothing(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[11] = event
	for _, id := range []device.ID{extDev, cuda, {Type: 99, Ordinal: 1 << 40}} {
		a, cell := onDevice(t, id, 11)
		assert.Equal(t, id, a.DeviceID())
		var out cdevice.CArrowDeviceArray
		require.NoError(t, cdevice.ExportArray(a, &out, nil))
		assert.EqualValues(t, id.Type, out.DeviceType)
		assert.Equal(t, id.Ordinal, out.DeviceID)
		assert.Equal(t, addressOf(cell), out.SyncEvent, "the event travels along")
		cdevice.ReleaseStruct(&out)
		part, err := a.Slice(1, 2)
		require.NoError(t, err)
		require.NoError(t, cdevice.ExportArray(part, &out, nil))
		assert.Equal(t, addressOf(cell), out.SyncEvent, "with a slice too")
		assert.Equal(t, id, part.DeviceID())
		cdevice.ReleaseStruct(&out)
		part.Release()
		a.Release()
	}
	assert.Zero(t, event.waits)
}

func TestPartsOfABatchKeepDeviceAndEvent(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	in := new(cdevice.CArrowDeviceArray)
	require.NoError(t, cdevice.ExportRecordBatch(wrap(t, rec), in, nil))
	cell := new(uintptr)
	in.DeviceType, in.DeviceID, in.SyncEvent = int32(cuda.Type), cuda.Ordinal, addressOf(cell)
	b, err := cdevice.ImportRecordBatchWithSchema(in, rec.Schema())
	require.NoError(t, err)
	defer b.Release()
	part, err := b.Slice(1, 3)
	require.NoError(t, err)
	defer part.Release()
	picked, err := part.Select(1)
	require.NoError(t, err)
	defer picked.Release()
	column := picked.Column(0)
	defer column.Release()
	for _, export := range []func(*cdevice.CArrowDeviceArray) error{
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportRecordBatch(b, out, nil) },
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportRecordBatch(part, out, nil) },
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportRecordBatch(picked, out, nil) },
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportArray(column, out, nil) },
	} {
		var out cdevice.CArrowDeviceArray
		require.NoError(t, export(&out))
		assert.Equal(t, addressOf(cell), out.SyncEvent)
		assert.EqualValues(t, cuda.Type, out.DeviceType)
		assert.Equal(t, cuda.Ordinal, out.DeviceID)
		cdevice.ReleaseStruct(&out)
	}
}

// Arrow C++ rejects NULL offsets even of empty arrays: an array imported with NULL is exported with
// zeros, and the bitmap stays NULL.
func TestNullBuffersAreReplacedOnTheCPU(t *testing.T) {
	checkLeaks(t)
	for _, at := range []device.ID{device.CPUDevice().ID(), cuda} {
		tree := cpeer.NewTree(cpeer.Node{Buffers: []uintptr{0, 0, 0}})
		defer tree.Free()
		in := new(cdevice.CArrowDeviceArray)
		tree.Export(abi.As[abi.ArrowDeviceArray](in))
		in.DeviceType, in.DeviceID = int32(at.Type), at.Ordinal
		a, err := cdevice.ImportArrayWithType(in, arrow.BinaryTypes.String)
		require.NoError(t, err)
		defer a.Release()
		var out cdevice.CArrowDeviceArray
		require.NoError(t, cdevice.ExportArray(a, &out, nil))
		defer cdevice.ReleaseStruct(&out)
		buffers := abi.Slice[uintptr](out.Array.Buffers, 3)
		assert.Zero(t, buffers[0])
		for _, addr := range buffers[1:] {
			if at.Type == device.CPU {
				assert.Zero(t, *abi.At[int32](addr))
			} else {
				assert.Zero(t, addr, "a host address has no place on another device")
			}
		}
	}
}

func TestViewAndCopyWaitForTheEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[12] = event
	a, _ := onDevice(t, extDev, 12)
	defer a.Release()
	view, err := a.HostView(context.Background())
	require.NoError(t, err)
	defer view.Release()
	assert.Equal(t, `[1,2]`, marshal(t, view))
	assert.Equal(t, testEvent{waits: 1, closes: 1}, *event)
	copied, err := a.CopyToHost(context.Background(), nil)
	require.NoError(t, err)
	defer copied.Release()
	assert.Equal(t, testEvent{waits: 2, closes: 2}, *event)
}

func TestFailedWaitIsAnError(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{err: errors.New("launch failure")}
	testEvents[13] = event
	a, _ := onDevice(t, extDev, 13)
	defer a.Release()
	ctx := context.Background()
	_, err := a.HostView(ctx)
	assert.ErrorIs(t, err, event.err)
	_, err = a.CopyToHost(ctx, nil)
	assert.ErrorIs(t, err, event.err)
	out := cdevice.CArrowDeviceArray{DeviceID: 7}
	assert.ErrorIs(t, a.Synchronize(ctx), event.err)
	_, err = a.AsCPU(ctx)
	assert.ErrorIs(t, err, event.err)
	require.NoError(t, cdevice.ExportArray(a, &out, nil), "which does not wait")
	assert.NotZero(t, out.SyncEvent, "it was not waited for")
	cdevice.ReleaseStruct(&out)
	assert.Equal(t, event.waits, event.closes)
}

func TestSynchronizeWaitsAndLeavesNoEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[14] = event
	a, _ := onDevice(t, extDev, 14)
	defer a.Release()
	var out cdevice.CArrowDeviceArray
	before, err := a.Slice(0, 1)
	require.NoError(t, err)
	defer before.Release()
	for range 2 {
		require.NoError(t, a.Synchronize(context.Background()))
	}
	assert.Equal(t, 1, event.waits, "once")
	require.NoError(t, cdevice.ExportArray(a, &out, nil))
	defer cdevice.ReleaseStruct(&out)
	part, err := a.Slice(0, 1)
	require.NoError(t, err)
	defer part.Release()
	for of, want := range map[*cdevice.Array]bool{a: true, part: true, before: false} {
		var other cdevice.CArrowDeviceArray
		require.NoError(t, cdevice.ExportArray(of, &other, nil))
		assert.Equal(t, want, other.SyncEvent == 0, "what was made of it before has its event")
		cdevice.ReleaseStruct(&other)
	}
	assert.Zero(t, out.SyncEvent)
	assert.EqualValues(t, device.ExtDev, out.DeviceType, "the device stays")
}

func TestAsCPUWaitsAndLabelsCPU(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[15] = event
	ctx := context.Background()
	a, _ := onDevice(t, extDev, 15)
	defer a.Release()
	b, _ := onDevice(t, pinned, 0) // host memory by its type alone, and no event
	defer b.Release()
	for _, a := range []*cdevice.Array{a, b} {
		var out cdevice.CArrowDeviceArray
		require.NoError(t, exportMade(&out, nil)(a.AsCPU(ctx)))
		assert.EqualValues(t, device.CPU, out.DeviceType)
		assert.EqualValues(t, -1, out.DeviceID)
		assert.Zero(t, out.SyncEvent)
		back, err := validated(cdevice.ImportArrayWithType(&out, arrow.PrimitiveTypes.Int32))
		require.NoError(t, err)
		back.Release()
	}
	assert.Equal(t, 1, event.waits, "only where there is an event")
}

func TestAsCPURefusesDeviceMemory(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, cuda, 0)
	defer a.Release()
	_, err := a.AsCPU(context.Background())
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "cdevice: read: Array.DeviceID = cuda:3, want memory that the CPU can access: the CPU cannot access memory of cuda:3")
}

func TestWaitWithoutABackendIsNotSupported(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, pinned, 16)
	defer a.Release()
	_, err := a.HostView(context.Background())
	assert.ErrorIs(t, err, device.ErrNotSupported, "readable, but nobody can wait for the event")
}

func TestDeviceMemoryIsNotRead(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, cuda, 0)
	defer a.Release()
	ctx := context.Background()
	_, err := a.HostView(ctx)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = a.CopyToHost(ctx, nil)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = a.Device()
	assert.ErrorIs(t, err, device.ErrNotSupported)
	part, err := a.Slice(1, 2)
	require.NoError(t, err, "but sliced and exported it can be")
	defer part.Release()
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(part, &out, nil))
	_, err = validated(cdevice.ImportArrayWithType(&out, arrow.PrimitiveTypes.Int32))
	assert.ErrorIs(t, err, device.ErrNotSupported, "contents cannot be checked without a driver")
}

func TestWrapNeedsHostMemory(t *testing.T) {
	_, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`), gpuOnly{device.CPUDevice()})
	assert.ErrorIs(t, err, device.ErrNotSupported)
}
