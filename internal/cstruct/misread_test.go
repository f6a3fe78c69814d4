package cstruct

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// far is an address of data or code.
const far = 0x55aa_1234_5670

// A schema without children has NULL for their address, that of an empty slice of Rust, or any other.
func TestArrayAndSchemaExchanged(t *testing.T) {
	for _, children := range []uintptr{0, 1, 8, far} {
		for _, length := range []int64{0, 3, 1 << 20, 1 << 31} {
			leaf := abi.ArrowSchema{Format: far, Flags: 2, Children: children, Release: far, PrivateData: far}
			array := abi.ArrowArray{Length: length, NBuffers: 2, Buffers: far, Release: far, PrivateData: far}
			dictionary := array
			dictionary.Dictionary = far
			empty := abi.ArrowArray{Length: length, NBuffers: 1, Buffers: far, Release: far}
			for name, a := range map[string]abi.ArrowArray{"array": array, "dictionary": dictionary, "no columns": empty} {
				assert.NoError(t, CheckOrder("", &a, &leaf), "%s of %d, children %#x", name, length, children)
				err := CheckOrder("ArrowArray", (*abi.ArrowArray)(unsafe.Pointer(&leaf)), (*abi.ArrowSchema)(unsafe.Pointer(&a)))
				assert.ErrorContains(t, err, "exchange the two addresses", "%s of %d, children %#x", name, length, children)
			}
		}
	}
}

// Structs that are malformed, or were released, are not of another kind: an import releases what can be.
func TestNothingIsExchanged(t *testing.T) {
	for name, c := range map[string]struct {
		a abi.ArrowArray
		s abi.ArrowSchema
	}{
		"both released":   {abi.ArrowArray{Dictionary: far}, abi.ArrowSchema{Format: far}},
		"schema released": {abi.ArrowArray{Buffers: far, Dictionary: far, Release: far}, abi.ArrowSchema{Format: far}},
		"no buffers":      {abi.ArrowArray{Dictionary: far, Release: far}, abi.ArrowSchema{Format: far, Children: 8, Release: far}},
		"children":        {abi.ArrowArray{NChildren: 1, Buffers: far, Dictionary: far, Release: far}, abi.ArrowSchema{Format: far, Release: far}},
	} {
		assert.NoError(t, CheckOrder("", &c.a, &c.s), name)
	}
}

// The bytes behind device_type are of no member, and hold anything.
func TestStreamsOfTheOtherKind(t *testing.T) {
	behind := func(t int32, padding uint32) (s abi.ArrowDeviceArrayStream) {
		*(*uint64)(unsafe.Pointer(&s.DeviceType)) = uint64(padding)<<32 | uint64(uint32(t))
		return s
	}
	for _, padding := range []uint32{0, 0x7ffc, math.MaxUint32} {
		for _, deviceType := range []int32{-1, 0, 1, 2, 15, math.MaxUint16} {
			s := behind(deviceType, padding)
			assert.NoError(t, CheckDeviceStream(&s), "type %d, padding %#x", deviceType, padding)
		}
		for _, deviceType := range []int32{1, 2, 15} {
			s := behind(deviceType, padding)
			assert.ErrorContains(t, CheckPlainStream((*abi.ArrowArrayStream)(unsafe.Pointer(&s))), "DeviceArrayStreamFromPtr", "type %d, padding %#x", deviceType, padding)
		}
	}
	own := behind(100_000, 0)
	assert.NoError(t, CheckDeviceStream(&own), "a type of the program's own")
	for _, callback := range []uintptr{noCode, 0x40_1000, far, far | 15, 0x7fff_0000_0010} {
		s := struct {
			abi.ArrowArrayStream
			_ uintptr
		}{ArrowArrayStream: abi.ArrowArrayStream{GetSchema: callback}}
		assert.NoError(t, CheckPlainStream(&s.ArrowArrayStream), "%#x", callback)
		if callback != 0x7fff_0000_0010 { // looks like a type with bytes behind it
			assert.ErrorContains(t, CheckDeviceStream((*abi.ArrowDeviceArrayStream)(unsafe.Pointer(&s))), "ArrayStreamFromPtr", "%#x", callback)
		}
	}
}
