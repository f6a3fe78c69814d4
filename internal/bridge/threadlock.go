package bridge

// #include "threadlock.h"
import "C"

import (
	"bytes"
	"runtime"
)

// ThreadLock is how a goroutine is locked to its thread: in callbacks from C, each of which adds a lock, or by
// runtime.LockOSThread. The runtime ends the process where a coroutine of iter.Pull is resumed under another ThreadLock
// than the one that it was made under (golang/go#67499). Two are compared by ==.
type ThreadLock struct {
	goroutine string // its number, as stacks have it
	thread    uintptr
	callbacks int // from C, on the stack of the goroutine
}

// CurrentThreadLock returns that of the calling goroutine. It is the zero value if the goroutine is not locked. It does not see how often
// runtime.LockOSThread was called.
func CurrentThreadLock() ThreadLock {
	goroutine, locked := describeGoroutine()
	if !locked {
		return ThreadLock{}
	}
	return ThreadLock{goroutine, uintptr(C.cdevice_v0_thread()), callbacksOnStack()}
}

// describeGoroutine reads the first line of a stack, "goroutine 17 [running, locked to thread]:": package runtime has no function for it.
func describeGoroutine() (number string, locked bool) {
	var text [256]byte
	line, _, _ := bytes.Cut(text[:runtime.Stack(text[:], false)], []byte{'\n'})
	before, state, _ := bytes.Cut(line, []byte(" ["))
	return string(before), bytes.Contains(state, []byte("locked to thread"))
}

func callbacksOnStack() int {
	const step = 64
	found := 0
	for skip := 0; ; skip += step {
		var pcs [step]uintptr
		n := runtime.Callers(skip, pcs[:])
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if frame.Function == "runtime.cgocallbackg" {
				found++
			}
		}
		if n < step {
			return found
		}
	}
}
