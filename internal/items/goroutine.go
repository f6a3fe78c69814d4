package items

import "time"

// Background runs f on a goroutine of its own, which is counted.
func Background(f func()) {
	Goroutines.Add(1)
	go func() {
		defer Goroutines.Add(-1)
		f()
	}()
}

// After runs f on a goroutine of its own after d, unless stop is called before. The goroutine is
// counted from now on, since it may begin at any time.
func After(d time.Duration, f func()) (stop func()) {
	Goroutines.Add(1)
	timer := time.AfterFunc(d, func() {
		defer Goroutines.Add(-1)
		f()
	})
	return func() {
		if timer.Stop() {
			Goroutines.Add(-1)
		}
	}
}
