//go:build !linux

package gpu

import "time"

// nap leaves pauses to Go's timers.
func nap(time.Duration) bool { return false }
