//go:build cgo && linux

// Package callocfail makes allocations of C memory fail that the library makes, and no others: neither those of the C
// library, nor those of Go's runtime, which ends the process where it has no memory. [Overlay] is for a build of the
// library that asks this package before each allocation.
package callocfail

// #include "callocfail.h"
import "C"

import (
	"runtime"
	"time"
)

// Built reports whether the library of this program was built with an [Overlay].
func Built() bool { return C.callocfail_files > 0 }

// Arm makes the n-th allocation from now on fail, counted from 1, and all after it if always is true, until [Disarm] is
// called.
func Arm(n int, always bool) {
	var all C.int64_t
	if always {
		all = 1
	}
	C.callocfail_arm(C.int64_t(n), all)
}

// Disarm ends [Arm], and returns how many allocations have failed.
func Disarm() (failed int) { return int(C.callocfail_disarm()) }

// Live returns the number of blocks of C memory that the library has not freed, without those of objects of the Go heap that
// nothing refers to.
func Live() int {
	for range 4 { // pools keep objects for two collections
		runtime.GC()
	}
	cleaned := make(chan struct{})
	runtime.AddCleanup(new(*int), func(struct{}) { close(cleaned) }, struct{}{})
	runtime.GC()
	select {
	case <-cleaned: // and those of objects that were collected before
	case <-time.After(10 * time.Second):
	}
	return int(C.callocfail_live)
}
