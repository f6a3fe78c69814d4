package foreign

// #include "stopper.h"
import "C"

import (
	"runtime"
	"sync"
)

var stoppable sync.Mutex

// Stoppable calls f on a thread that [Stop] stops between any two instructions. There is one such thread at a time, and f returns when
// no call of Stop is to come.
func Stoppable(f func()) {
	stoppable.Lock()
	defer stoppable.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.foreign_stoppable()
	defer C.foreign_unstoppable()
	f()
}

// Stop stops the thread of a call of [Stoppable] that runs, and reports whether it has. It goes on by itself after some milliseconds.
func Stop() bool { return C.foreign_stop() != 0 }

// GoOn lets the thread go on.
func GoOn() { C.foreign_go_on() }
