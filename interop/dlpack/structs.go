package dlpack

import (
	clayout "structs" // HostLayout: the fields lie as in C

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// The version of DLPack that exported tensors have. Imports accept every minor version of the major
// version.
const (
	MajorVersion = 1
	MinorVersion = 2
)

// The bits of [ManagedTensorVersioned].Flags.
const (
	FlagReadOnly            = 1 << 0 // the data must not be written to
	FlagIsCopied            = 1 << 1 // the data is a copy that the producer made for this consumer
	FlagIsSubbyteTypePadded = 1 << 2 // elements of less than 8 bits have a byte each
)

// The values of DataType.Code for Arrow's numeric types. The others are opaque handles (3),
// bfloat16 (4), complex numbers (5), bool (6) and small floats (7 and more).
const (
	Int   = 0
	UInt  = 1
	Float = 2
)

// Device is struct DLDevice. The types have the numbers of ArrowDeviceType, and so of device.Type.
type Device struct {
	_    clayout.HostLayout
	Type int32 // a device.Type
	ID   int32 // number of the device; 0 for plain, pinned and managed memory
}

// DataType is struct DLDataType: the type of the elements.
type DataType struct {
	_     clayout.HostLayout
	Code  uint8  // Int, UInt, Float or another code
	Bits  uint8  // bits of one lane
	Lanes uint16 // numbers in an element: 1, except of vector types
}

// Tensor is struct DLTensor. It holds C addresses as integers; [Tensor.Shape] and [Tensor.Strides] read what they point to.
type Tensor struct {
	_          clayout.HostLayout
	Data       uintptr // void*: an address on the device; of some devices, a handle
	Device     Device
	NDim       int32 // dimensions
	DType      DataType
	ShapePtr   uintptr // int64_t[NDim]: elements in each dimension
	StridesPtr uintptr // int64_t[NDim]: elements from one index to the next; NULL is C order
	ByteOffset uint64  // bytes from Data to the first element
}

// Shape returns the number of elements in each dimension, in the memory of the tensor. It is nil for a tensor without dimensions.
func (t *Tensor) Shape() []int64 { return t.sizes(t.ShapePtr) }

// Strides returns the number of elements from one index to the next in each dimension, in the memory of the tensor. It is nil
// for a tensor in C order that has none.
func (t *Tensor) Strides() []int64 { return t.sizes(t.StridesPtr) }

func (t *Tensor) sizes(at uintptr) []int64 {
	if t.NDim <= 0 || at == 0 {
		return nil
	}
	return abi.Slice[int64](at, int(t.NDim))
}

// ManagedTensor is struct DLManagedTensor, the legacy form: that of Python capsules with the name
// "dltensor". It lies in C memory that belongs to its producer; the consumer calls the deleter
// once, after the last use of the data.
type ManagedTensor struct {
	_          clayout.HostLayout
	Tensor     Tensor
	ManagerCtx uintptr // void* of the producer
	Deleter    uintptr // void (*)(struct DLManagedTensor*), or NULL
}

// ManagedTensorVersioned is struct DLManagedTensorVersioned, the form of DLPack 1: that of Python
// capsules with the name "dltensor_versioned". It lies in C memory that belongs to its producer; the
// consumer calls the deleter once, after the last use of the data.
type ManagedTensorVersioned struct {
	_          clayout.HostLayout
	Major      uint32  // of DLPack's version; with another one, the fields from Flags on may differ
	Minor      uint32  // of DLPack's version
	ManagerCtx uintptr // void* of the producer
	Deleter    uintptr // void (*)(struct DLManagedTensorVersioned*), or NULL
	Flags      uint64  // FlagReadOnly and others
	Tensor     Tensor
}

// ManagedTensorFromPtr returns the struct DLManagedTensor at an address, such as that of a Python
// capsule. It borrows the struct.
func ManagedTensorFromPtr(ptr uintptr) *ManagedTensor { return abi.At[ManagedTensor](ptr) }

// ManagedTensorVersionedFromPtr returns the struct DLManagedTensorVersioned at an address, such as
// that of a Python capsule. It borrows the struct.
func ManagedTensorVersionedFromPtr(ptr uintptr) *ManagedTensorVersioned {
	return abi.At[ManagedTensorVersioned](ptr)
}

// Delete calls the deleter, for a tensor that no consumer took. The tensor must not be used
// afterwards. A nil tensor, or one without a deleter, is left alone.
func (t *ManagedTensor) Delete() {
	if t != nil {
		bridge.CallDLDeleter(address(t), false)
	}
}

// Delete calls the deleter, for a tensor that no consumer took. The tensor must not be used
// afterwards. A nil tensor, or one without a deleter, is left alone.
func (t *ManagedTensorVersioned) Delete() {
	if t != nil {
		bridge.CallDLDeleter(address(t), true)
	}
}
