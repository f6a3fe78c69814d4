package cudatest

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// At is n bytes of memory that the host reaches.
func At(p device.Ptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// Pointer is the address of b.
func Pointer(b []byte) device.Ptr {
	return device.Ptr(heap.AddressOf(b))
}

// Fill sets every byte of b.
func Fill(b []byte, value byte) {
	for i := range b {
		b[i] = value
	}
}
