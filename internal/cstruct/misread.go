package cstruct

import (
	"math"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Structs of another kind than the caller says. They are recognised before anything that they point to is read or called:
// their release callback is not where that of the expected struct is. So they are not taken.

// CheckOrder returns an error if the addresses of an array, which the error calls name, and of its schema were exchanged.
//
// Where an array has its dictionary, a schema has its release callback; where it has its buffers, the children, or
// without any a small number, as Rust has for the address of an empty slice; where it has its length, the address of the
// format. So the array seems to have a dictionary, and what no such array has: children, no buffers, or 2^32 rows. And the
// schema seems to be released, to have a small number, the length, for the address of its format, or children without a count.
func CheckOrder(name string, a *abi.ArrowArray, s *abi.ArrowSchema) error {
	if a == nil || s == nil || a.Dictionary == 0 || a.NChildren == 0 && a.Buffers > math.MaxUint16 && a.Length <= math.MaxUint32 {
		return nil
	}
	if s.Release != 0 && s.Format > math.MaxUint16 && (s.NChildren != 0 || s.Children <= math.MaxUint16) {
		return nil
	}
	if a.Release == 0 && s.Release == 0 {
		return nil // both are released, which the error of an import says, and it calls nothing
	}
	return fielderr.Invalid(fielderr.OpImport, name, "an ArrowSchema", "an array: exchange the two addresses; neither struct was taken")
}

// noCode is an address below which no system has functions.
const noCode = 1 << 22

// CheckDeviceStream returns an error if a struct begins with the address of a function, as an ArrowArrayStream does.
func CheckDeviceStream(s *abi.ArrowDeviceArrayStream) error {
	first := *(*uint64)(unsafe.Pointer(&s.DeviceType)) // the type, and the bytes behind it, which are of no member
	if first < noCode || s.DeviceType >= -math.MaxUint16 && s.DeviceType <= math.MaxUint16 {
		return nil
	}
	return fielderr.Invalid(fielderr.OpImport, "ArrowDeviceArrayStream.device_type", s.DeviceType,
		"the type of a device; if it is an ArrowArrayStream, ArrayStreamFromPtr; it was not taken")
}

// CheckPlainStream returns an error if a struct begins with the type of a device, as an ArrowDeviceArrayStream does. The
// bytes behind the type may hold anything.
func CheckPlainStream(s *abi.ArrowArrayStream) error {
	t := uint32(s.GetSchema)
	isKnown := t > 0 && t < 16 // a function begins there once in 2^28 programs
	if s.GetSchema == 0 || s.GetSchema > math.MaxUint16 && !isKnown {
		return nil
	}
	return fielderr.Invalid(fielderr.OpImport, "ArrowArrayStream.get_schema", fielderr.Hex(s.GetSchema),
		"a callback; if it is an ArrowDeviceArrayStream, DeviceArrayStreamFromPtr; it was not taken")
}
