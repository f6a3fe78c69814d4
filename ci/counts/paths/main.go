//go:build cgo && linux

// Paths does each hot path of the library some times between the marks of package probe, and prints what one operation
// has done. Under callgrind, the n-th dump is that of the n-th path, and thread 1 is the one that did it. ci/counts
// runs it.
package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/ci/counts/probe"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// The goroutine of main stays on the first thread.
func init() { runtime.LockOSThread() }

// path is one operation, which the functions do so many times.
type path struct {
	name  string
	times int
	do    func(n int)
}

func main() {
	debug.SetGCPercent(-1) // a collection is no part of any path
	bridge.CountCallbacks()
	sim := newSimulated(os.Args[1])
	for _, p := range allPaths(sim) {
		p.measure(sim)
	}
}

// rounds is how many times a path is measured, after it has run as often.
const rounds = 5

// warm is how often a path that costs little runs before it is measured. What is made once, such as pools and plans of
// schemas, is made then; and Go remembers the type of an interface with a chance of 1 in 1024 for each assertion that
// has to look it up.
const warm = 8000

// measure prints the counts of each round.
func (p path) measure(sim *simulated) {
	if p.times >= many {
		p.do(warm)
	}
	p.do(p.times)
	for range rounds {
		calls, waits := sim.calls()
		c := probe.Count(func() { p.do(p.times) })
		callsAfter, waitsAfter := sim.calls()
		fmt.Printf("%s\t%d", p.name, p.times)
		for _, n := range []int64{c.GoAllocs, c.GoBytes, c.Mallocs, c.IntoC, c.IntoGo, callsAfter - calls, waitsAfter - waits} {
			fmt.Printf("\t%g", math.Round(float64(n)/float64(p.times)*100)/100)
		}
		fmt.Println()
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
