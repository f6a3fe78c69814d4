package gpu

import (
	"syscall"
	"time"
)

// naps has room for those that nap at a time: each keeps an OS thread.
var naps = make(chan struct{}, 16)

// nap sleeps for a part of a millisecond. Go's timers make a whole one of it where the process has nothing else to
// do, which is many times what a copy of some MiB takes. It reports whether there was room.
func nap(pause time.Duration) bool {
	select {
	case naps <- struct{}{}:
	default:
		return false
	}
	defer func() { <-naps }()
	t := syscall.NsecToTimespec(pause.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // it may end sooner: then the driver is asked sooner
	return true
}
