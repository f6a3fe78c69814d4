package cudaalloc_test

import (
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

// at is memory of a device as the host sees it.
func at(p device.Ptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// pointer is the address of b.
func pointer(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// touch reads or writes host memory at p and reports whether that faults.
func touch(p device.Ptr, write bool) (faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { faulted = recover() != nil }()
	b := at(p, 1)
	if write {
		b[0] = 1
	} else {
		sink = b[0]
	}
	return
}

// sink keeps the bytes that touch reads.
var sink byte

// goPinned is Go memory that copies may write to until the test ends.
func goPinned(t *testing.T, n int) []byte {
	b := make([]byte, n)
	pins := new(runtime.Pinner)
	pins.Pin(&b[0])
	t.Cleanup(pins.Unpin)
	return b
}

// fill sets every byte of b.
func fill(b []byte, value byte) {
	for i := range b {
		b[i] = value
	}
}
