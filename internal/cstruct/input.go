package cstruct

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Input is a C struct that an import takes: an ArrowDeviceArray, or a plain ArrowArray. Functions take a
// pointer, and fill locations in place: a copy of what was written a moment before stalls the processor.
type Input struct {
	Array *abi.ArrowArray // nil if the caller gave no struct
	ID    device.ID       // as in the struct; see Locate
	Event uintptr
	Names *StructNames
	// CountsNulls allows to read the bitmap of a record batch, in memory of the CPU, whose null count is unknown.
	CountsNulls bool
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

// SetDevice makes *in, which is zero, a struct of the C device data interface.
func (in *Input) SetDevice(arr *abi.ArrowDeviceArray) {
	in.Names = deviceNames
	if arr == nil {
		return
	}
	// mutant: in.Array, in.Event = &arr.Array, 0
	in.Array, in.Event = &arr.Array, arr.SyncEvent
	in.ID.Type, in.ID.Ordinal = device.Type(arr.DeviceType), arr.DeviceID
}

// SetPlain makes *in, which is zero, a struct of the C data interface, whose memory is the CPU's and ready.
func (in *Input) SetPlain(arr *abi.ArrowArray) {
	in.Names, in.Array = PlainNames, arr
	in.ID.Type, in.ID.Ordinal = device.CPU, device.NoOrdinal
}

// Locate sets *at, which is zero, to the location of the memory of an import.
func (in *Input) Locate(at *tree.Location) {
	at.ID.Type, at.ID.Ordinal, at.Event = in.ID.Type, in.ID.Ordinal, in.Event
	if at.ID.Type == device.CPU {
		at.ID.Ordinal = device.NoOrdinal // some producers number the CPU
		at.Event = 0                     // see checkEvent
	}
}
