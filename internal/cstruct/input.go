package cstruct

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Input is a C struct that an import takes: an ArrowDeviceArray, or a plain ArrowArray.
type Input struct {
	Array *abi.ArrowArray // nil where the caller gave no struct
	At    tree.Location   // as the struct has it; see PlaceOf
	Names *StructNames
}

// StructNames is what errors call a kind of struct, and the arrays in one.
type StructNames struct {
	Name   string
	column func(i int) string // column i of a record batch
	root   func(int) string   // the array itself
}

var deviceNames = &StructNames{
	Name:   "ArrowDeviceArray",
	column: func(i int) string { return "ArrowDeviceArray.array." + fielderr.Child(i) },
	root:   func(int) string { return "ArrowDeviceArray.array" },
}

var PlainNames = &StructNames{
	Name:   "ArrowArray",
	column: func(i int) string { return "ArrowArray." + fielderr.Child(i) },
	root:   func(int) string { return "ArrowArray" },
}

func DeviceInput(arr *abi.ArrowDeviceArray) Input {
	if arr == nil {
		return Input{Names: deviceNames}
	}
	return Input{
		Array: &arr.Array,
		At:    tree.Location{ID: device.ID{Type: device.Type(arr.DeviceType), Ordinal: arr.DeviceID}, Event: arr.SyncEvent},
		Names: deviceNames,
	}
}

// PlainInput is a struct of the C data interface, whose memory is the CPU's and ready.
func PlainInput(arr *abi.ArrowArray) Input {
	return Input{Array: arr, At: tree.Location{ID: device.ID{Type: device.CPU, Ordinal: device.NoOrdinal}}, Names: PlainNames}
}

// PlaceOf is where the memory of an import lives.
func PlaceOf(in Input) tree.Location {
	at := in.At
	if at.ID.Type == device.CPU {
		at.ID.Ordinal = device.NoOrdinal // some producers number the CPU
		at.Event = 0                     // see checkEvent
	}
	return at
}
