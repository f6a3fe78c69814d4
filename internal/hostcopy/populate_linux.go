package hostcopy

import (
	"os"
	"sync/atomic"
	"syscall"
)

const (
	populateWrite = 23       // MADV_POPULATE_WRITE, of Linux 5.14
	leastPopulate = 64 << 10 // for which the call is worth its time
)

var (
	pageSize       = uintptr(os.Getpagesize())
	cannotPopulate atomic.Bool // the system does not know populateWrite
)

// populate has the system provide the pages that are in the memory. Where it does not, the copy meets their faults.
func populate(to uintptr, size int64) {
	if size < leastPopulate || cannotPopulate.Load() {
		return
	}
	first := (to + pageSize - 1) &^ (pageSize - 1)
	end := (to + uintptr(size)) &^ (pageSize - 1)
	if _, _, err := syscall.Syscall(syscall.SYS_MADVISE, first, end-first, populateWrite); err == syscall.EINVAL {
		cannotPopulate.Store(true)
	}
}
