package cstruct

import (
	"math"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Structs of another kind than the caller says. They are recognised before anything that they point to is read or called:
// their release callback is not where that of the expected struct is. So they are not taken.

// CheckOrder returns an error if the addresses of an array, which the error calls name, and of its schema were exchanged.
//
// Where an array has its dictionary, a schema has its release callback; where it has its buffers, the children. So the
// array seems to have a dictionary, and children or no buffers, as no array has. And the schema seems to be released, to
// have a small number, the length, for the address of its format, or children without a count.
func CheckOrder(name string, a *abi.ArrowArray, s *abi.ArrowSchema) error {
	if a == nil || s == nil || a.Dictionary == 0 || a.NChildren == 0 && a.Buffers != 0 {
		return nil
	}
	if s.Release != 0 && s.Format > math.MaxUint16 && (s.NChildren != 0 || s.Children == 0) {
		return nil
	}
	return fielderr.Invalid(fielderr.OpImport, name, "an ArrowSchema", "an array: exchange the two addresses; neither struct was taken")
}

// CheckDeviceStream returns an error if a struct begins with the address of a function, as an ArrowArrayStream does.
func CheckDeviceStream(s *abi.ArrowDeviceArrayStream) error {
	if s.DeviceType >= -math.MaxUint16 && s.DeviceType <= math.MaxUint16 {
		return nil
	}
	return fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArrayStream.device_type", s.DeviceType,
		"the type of a device; if it is an ArrowArrayStream, ArrayStreamFromPtr; it was not taken")
}

// CheckPlainStream returns an error if a struct begins with the type of a device, as an ArrowDeviceArrayStream does.
func CheckPlainStream(s *abi.ArrowArrayStream) error {
	if s.GetSchema == 0 || s.GetSchema > math.MaxUint16 {
		return nil
	}
	return fielderr.Invalid(fielderr.OpImport, "ArrowArrayStream.get_schema", fielderr.Hex(s.GetSchema),
		"a callback; if it is an ArrowDeviceArrayStream, DeviceArrayStreamFromPtr; it was not taken")
}
