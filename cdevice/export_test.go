package cdevice

import "time"

// SetPatience sets how long the callbacks of a producer wait for its own calls, until restore is called.
func SetPatience(d time.Duration) (restore func()) {
	before := patience
	patience = d
	return func() { patience = before }
}
