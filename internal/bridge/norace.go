//go:build !race

package bridge

// ordered is for the race detector.
func ordered() {}
