package cdevice_test

import (
	"math/bits"
	"syscall"
	"unsafe"
)

// pinToOneCore keeps this thread, and the processes that it starts, on one core of those it has.
func pinToOneCore() error {
	var cores [16]uint64
	size := unsafe.Sizeof(cores)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, size, uintptr(unsafe.Pointer(&cores))); errno != 0 {
		return errno
	}
	one := false
	for i := range cores {
		if one || cores[i] == 0 {
			cores[i] = 0
			continue
		}
		one = true
		cores[i] = 1 << bits.TrailingZeros64(cores[i])
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, size, uintptr(unsafe.Pointer(&cores))); errno != 0 {
		return errno
	}
	return nil
}
