package dlpack_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// The numbers of DLPack 1 on 64-bit platforms. The C peer of the other tests has structs of its own.
func TestGoldenLayout(t *testing.T) {
	var (
		plain     dlpack.Tensor
		legacy    dlpack.ManagedTensor
		versioned dlpack.ManagedTensorVersioned
	)
	for _, row := range []struct {
		name      string
		got, want uintptr
	}{
		{"sizeof DLTensor", unsafe.Sizeof(plain), 48},
		{"DLTensor.device", unsafe.Offsetof(plain.Device), 8},
		{"DLTensor.device.device_id", unsafe.Offsetof(plain.Device.ID), 4},
		{"DLTensor.ndim", unsafe.Offsetof(plain.NDim), 16},
		{"DLTensor.dtype", unsafe.Offsetof(plain.DType), 20},
		{"DLTensor.dtype.bits", unsafe.Offsetof(plain.DType.Bits), 1},
		{"DLTensor.dtype.lanes", unsafe.Offsetof(plain.DType.Lanes), 2},
		{"DLTensor.shape", unsafe.Offsetof(plain.ShapePtr), 24},
		{"DLTensor.strides", unsafe.Offsetof(plain.StridesPtr), 32},
		{"DLTensor.byte_offset", unsafe.Offsetof(plain.ByteOffset), 40},

		{"sizeof DLManagedTensor", unsafe.Sizeof(legacy), 64},
		{"DLManagedTensor.manager_ctx", unsafe.Offsetof(legacy.ManagerCtx), 48},
		{"DLManagedTensor.deleter", unsafe.Offsetof(legacy.Deleter), 56},

		{"sizeof DLManagedTensorVersioned", unsafe.Sizeof(versioned), 80},
		{"DLManagedTensorVersioned.version.minor", unsafe.Offsetof(versioned.Minor), 4},
		{"DLManagedTensorVersioned.manager_ctx", unsafe.Offsetof(versioned.ManagerCtx), 8},
		{"DLManagedTensorVersioned.deleter", unsafe.Offsetof(versioned.Deleter), 16},
		{"DLManagedTensorVersioned.flags", unsafe.Offsetof(versioned.Flags), 24},
		{"DLManagedTensorVersioned.dl_tensor", unsafe.Offsetof(versioned.Tensor), 32},
	} {
		assert.Equal(t, row.want, row.got, row.name)
	}
}
