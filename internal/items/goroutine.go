package items

// Background runs f on a goroutine of its own, which is counted.
func Background(f func()) {
	Goroutines.Add(1)
	go func() {
		defer Goroutines.Add(-1)
		f()
	}()
}

// Routine returns a function that runs f on a goroutine of its own, which is counted. The function
// allocates no memory.
func Routine(f func()) (start func()) {
	run := func() {
		defer Goroutines.Add(-1)
		f()
	}
	return func() {
		Goroutines.Add(1)
		go run()
	}
}
