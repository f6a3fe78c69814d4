package hostpinned_test

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

func pointer(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
