package cpeer

// #include "locker.h"
import "C"

import (
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Locker is a producer with a lock that its request and cancel take, and that it holds while it
// releases the handler. Its memory ends then.
type Locker struct {
	Tree    Tree // of each batch; it lives longer than all lockers
	Batches int
	Fails   bool          // it ends with on_error
	Nap     time.Duration // that request and cancel take before they take the lock, below a second
}

// Start begins the stream, on a thread of its own. It takes the schema.
func (l Locker) Start(handler *abi.ArrowAsyncDeviceStreamHandler, s *abi.ArrowSchema) error {
	how := C.int(C.CPEER_LOCKER_END)
	if l.Fails {
		how = C.CPEER_LOCKER_ERROR
	}
	return waited(C.cpeer_locker_start((*C.struct_ArrowAsyncDeviceStreamHandler)(unsafe.Pointer(handler)), l.Tree.root,
		(*C.struct_ArrowSchema)(unsafe.Pointer(s)), C.int64_t(l.Batches), how, C.int64_t(l.Nap.Microseconds())))
}

// LockersLeft waits until all lockers have ended, for so many seconds at most, and returns how many
// have not.
func LockersLeft(seconds int) int { return int(C.cpeer_lockers_left(C.int64_t(seconds))) }

// LockerTasks is the number of tasks of lockers that were not extracted.
func LockerTasks() int { return int(C.cpeer_locker_tasks()) }
