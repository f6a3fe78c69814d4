package cudatest

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

// At is n bytes of memory that the host reaches.
func At(p device.Ptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// Pointer is the address of b.
func Pointer(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Fill sets every byte of b.
func Fill(b []byte, value byte) {
	for i := range b {
		b[i] = value
	}
}
