//go:build linux && cgo

package cudasimtest

import "time"

// SettleTime changes how long the end of a test waits for releases, until the returned function is called.
func SettleTime(d time.Duration) func() { return change(&settleTime, d) }

// FlushTime changes how long it waits for work, until the returned function is called.
func FlushTime(d time.Duration) func() { return change(&flushTime, d) }

func change(v *time.Duration, d time.Duration) func() {
	before := *v
	*v = d
	return func() { *v = before }
}
