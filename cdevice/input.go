package cdevice

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// input is a C struct that an import takes: an ArrowDeviceArray, or a plain ArrowArray.
type input struct {
	array *abi.ArrowArray // nil where the caller gave no struct
	at    tree.Location   // as the struct has it; see placeOf
	names *structNames
}

// structNames is what errors call a kind of struct, and the arrays in one.
type structNames struct {
	name   string
	column func(i int) string // column i of a record batch
	root   func(int) string   // the array itself
}

var deviceNames = &structNames{
	name:   "ArrowDeviceArray",
	column: func(i int) string { return "ArrowDeviceArray.array." + fielderr.Child(i) },
	root:   func(int) string { return "ArrowDeviceArray.array" },
}

var plainNames = &structNames{
	name:   "ArrowArray",
	column: func(i int) string { return "ArrowArray." + fielderr.Child(i) },
	root:   func(int) string { return "ArrowArray" },
}

func deviceInput(arr *CArrowDeviceArray) input {
	if arr == nil {
		return input{names: deviceNames}
	}
	return input{
		array: &deviceMirror(arr).Array,
		at:    tree.Location{ID: device.ID{Type: device.Type(arr.DeviceType), Ordinal: arr.DeviceID}, Event: arr.SyncEvent},
		names: deviceNames,
	}
}

// plainInput is a struct of the C data interface, whose memory is the CPU's and ready.
func plainInput(arr *abi.ArrowArray) input {
	return input{array: arr, at: tree.Location{ID: device.ID{Type: device.CPU, Ordinal: device.NoOrdinal}}, names: plainNames}
}

// placeOf is where the memory of an import lives.
func placeOf(in input) tree.Location {
	at := in.at
	if at.ID.Type == device.CPU {
		at.ID.Ordinal = device.NoOrdinal // some producers number the CPU
		at.Event = 0                     // see checkEvent
	}
	return at
}
