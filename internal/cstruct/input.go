package cstruct

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Input is a C struct that an import takes: an ArrowDeviceArray, or a plain ArrowArray.
type Input struct {
	Array *abi.ArrowArray // nil if the caller gave no struct
	At    tree.Location   // as in the struct; see LocationOf
	Names *StructNames
}

// StructNames has the names of a kind of struct, and of the arrays in it, in errors.
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

// PlainNames are the names of a plain ArrowArray.
var PlainNames = &StructNames{
	Name:   "ArrowArray",
	column: func(i int) string { return "ArrowArray." + fielderr.Child(i) },
	root:   func(int) string { return "ArrowArray" },
}

// DeviceInput returns a struct of the C device data interface.
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

// PlainInput returns a struct of the C data interface, whose memory is the CPU's and ready.
func PlainInput(arr *abi.ArrowArray) Input {
	return Input{Array: arr, At: tree.Location{ID: device.ID{Type: device.CPU, Ordinal: device.NoOrdinal}}, Names: PlainNames}
}

// LocationOf returns the location of the memory of an import.
func LocationOf(in Input) tree.Location {
	at := in.At
	if at.ID.Type == device.CPU {
		at.ID.Ordinal = device.NoOrdinal // some producers number the CPU
		at.Event = 0                     // see checkEvent
	}
	return at
}
