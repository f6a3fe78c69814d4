package cstruct

import (
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// The members that ArrowDeviceArray adds to ArrowArray, and the location that they say.
func TestLocationOfAStruct(t *testing.T) {
	cuda := func(ordinal int64, event uintptr) tree.Location {
		return tree.Location{ID: device.ID{Type: device.CUDA, Ordinal: ordinal}, Event: event}
	}
	cpu := tree.Location{ID: device.ID{Type: device.CPU, Ordinal: device.NoOrdinal}}
	for _, row := range []struct {
		kind  int32
		id    int64
		event uintptr
		at    tree.Location
		want  string // part of the error
	}{
		{1, -1, 0, cpu, ""}, {1, 0, 0, cpu, ""}, {1, -1, 16, cpu, ""}, {1, 1, 0, cpu, "device_id = 1"},
		{2, 0, 0, cuda(0, 0), ""}, {2, 3, 16, cuda(3, 16), ""}, {2, math.MaxInt32, 0, cuda(math.MaxInt32, 0), ""},
		{2, -1, 0, cpu, "device_id = -1"}, {2, math.MaxInt32 + 1, 0, cpu, "device_id = 2147483648"}, {2, 0, 17, cpu, "sync_event = 0x11"},
		{3, -1, 0, tree.Location{ID: device.ID{Type: device.CUDAHost, Ordinal: -1}}, ""}, {13, -1, 0, cpu, "device_id = -1"},
		{99, -7, 17, tree.Location{ID: device.ID{Type: 99, Ordinal: -7}, Event: 17}, ""}, // a type that this module does not know
		{0, 0, 0, cpu, "device_type = 0"}, {-1, 0, 0, cpu, "device_type = -1"},
	} {
		arr := &abi.ArrowDeviceArray{DeviceType: row.kind, DeviceID: row.id, SyncEvent: row.event}
		var in Input
		in.SetDevice(arr)
		assert.Same(t, &arr.Array, in.Array)
		if err := checkDevice(in.ID, in.Event); row.want != "" {
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, row.want)
		} else if assert.NoError(t, err) {
			var at tree.Location
			in.Locate(&at)
			assert.Equal(t, row.at, at)
		}
	}
}

func TestNoStruct(t *testing.T) {
	var device, plain, released Input
	device.SetDevice(nil)
	plain.SetPlain(nil)
	released.SetPlain(new(abi.ArrowArray))
	assert.EqualError(t, CheckTop(&device), "cdevice: import: ArrowDeviceArray = NULL, want a struct: invalid")
	assert.EqualError(t, CheckTop(&plain), "cdevice: import: ArrowArray = NULL, want a struct: invalid")
	assert.EqualError(t, CheckTop(&released), "cdevice: import: ArrowArray.release = NULL: invalid: already released, or never filled")
	released.Array.Release = 1
	assert.NoError(t, CheckTop(&released))
}
