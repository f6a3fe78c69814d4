package main

import (
	"fmt"
	"io"
	"runtime"
)

// promise is the least ratio that a run must show; docs/performance.md has the ratios of one run.
type promise struct {
	operation, shape, peer string
	columns                int
	least                  float64 // peer_ns / ns, or of processor time; see ofCPU
	allocs                 float64 // at most
	cores                  int     // the promise is for machines with as many
}

var promises = append(flightPromises(), []promise{
	{exportToC, "int64", "cdata", 1, 7, 0, 1},
	{exportToC, "int64", "cdata", 10, 20, 0, 1},
	{exportToC, "int64", "cdata", 100, 55, 0, 1},
	{exportToC, "int64", "cdata", 1000, 40, 0, 1},
	{exportToC, "int64", cFloor, 100, 0.5, 0, 1},
	{exportToC, "int64", arrowCPP, 1, 1.2, 0, 1},
	{exportToC, "int64", arrowCPP, 100, 7.5, 0, 1},
	{exportToC, "int64", nanoarrow, 1, 0.4, 0, 1},
	{exportToC, "int64", nanoarrow, 100, 5, 0, 1},
	{exportToC, "int64", arrowRS, 1, 0.35, 0, 1},
	{exportToC, "int64", arrowRS, 100, 5, 0, 1},
	{exportToThread, "int64", "cdata", 1, 5, 0, 1},
	{exportToThread, "int64", "cdata", 100, 18, 0, 1},
	{wrapToC, "int64", "cdata", 1, 2, 2, 1},
	{wrapToC, "int64", "cdata", 10, 6, 2, 1},
	{wrapToC, "int64", "cdata", 100, 14, 2, 1},
	{wrapToC, "int64", "cdata", 1000, 14, 2, 1},
	{wrapToC, onGoHeap, "cdata", 100, 5, 7, 1}, // the pins grow a list
	{wrapToC, "int64", arrowCPP, 100, 2.5, 2, 1},
	{wrapToThread, "int64", "cdata", 1, 1.6, 2, 1},
	{wrapToThread, "int64", "cdata", 100, 9, 2, 1},
	{streamToC, "int64", "cdata", 1, 2.9, 0, 1},
	{streamToC, "int64", "cdata", 100, 45, 0, 1},
	{streamToC, "utf8", "cdata", 100, 40, 0, 1},
	{streamToC, "int64", arrowCPP, 1, 0.6, 0, 1},
	{streamToC, "int64", arrowCPP, 100, 10, 0, 1},
	{streamToC, "int64", arrowRS, 1, 0.35, 0, 1},
	{streamToC, "int64", arrowRS, 100, 10, 0, 1},
	{streamToThread, "int64", "cdata", 1, 1.5, 0, 1},
	{streamToThread, "int64", "cdata", 100, 30, 0, 1},
	{streamInGo, "int64", "cdata", 100, 40, 2, 1},
	{importRelease, "int64", "cdata", 1, 3.1, 1, 1},
	{importRelease, "int64", "cdata", 100, 48, 1, 1},
	{importRelease, "int64", "cdata", 1000, 80, 1, 1},
	{importRelease, "utf8", "cdata", 100, 40, 1, 1},
	{importRelease, "list<struct>", "cdata", 100, 15, 1, 1},
	{importRelease, "int64", arrowCPP, 100, 16, 1, 1},
	{importRelease, "int64", arrowRS, 100, 9, 1, 1},
	{importRelease, "int64", goFloor, 1, 0.15, 1, 1},
	{importRelease, "int64", goFloor, 10, 0.15, 1, 1},
	{"async batch", "int64", "cdata", 100, 10, 5, 1},
	{dropInExport, "int64", "cdata", 1, 7, 0, 1},
	{dropInExport, "int64", "cdata", 10, 10, 0, 1},
	{dropInExport, "int64", "cdata", 100, 18, 0, 1},
	{dropInExport, "int64", "cdata", 1000, 12, 0, 1},
	{dropInExport, onGoHeap, "cdata", 100, 7, 0, 1},
	{dropInThread, "int64", "cdata", 1, 3, 0, 1},
	{dropInThread, "int64", "cdata", 100, 10, 0, 1},
	{dropInStream, "int64", "cdata", 1, 1.8, 3, 1},
	{dropInStream, "int64", "cdata", 100, 9, 3, 1},
	{dropInBothWays, "int64", "cdata", 1, 3, 2, 1},
	{dropInBothWays, "int64", "cdata", 100, 4, 25, 1},
	{dropInStreamView, "int64", "cdata", 100, 4, 30, 1},
	{dropInImport, "int64", "cdata", 1, 3.5, 1, 1},
	{dropInImport, "int64", "cdata", 100, 20, 3, 1},
	{dropInRead, "int64", "cdata", 1, 1.7, 2, 1},
	{dropInRead, "int64", "cdata", 10, 2, 5, 1},
	{dropInRead, "int64", "cdata", 100, 2, 25, 1},
	{dropInSchemaAgain, "int64", "cdata", 1, 8, 1, 1},
	{dropInSchemaAgain, "int64", "cdata", 100, 20, 1, 1},
	{idleName, "int64", "cdata", 1, 100, 0, 1},
	{callEmpty, "", ctypesCgo, 0, 0.12, 0, 1}, // these five keep to the limits of inCalls, as ratios
	{callAdd, "", ctypesCgo, 0, 0.4, 0, 1},
	{callOwn, "int64", pyO3, 1, 1.2, 0, 1},
	{callBatch, "int64", pyArrowExport, 1, 0.2, 0, 1},
	{callStream, "int64", ctypesCgo, 1, 0.6, 0, 1},
	// One goroutine leaves a core to the garbage collector: two of the Go floor make 1.2 times what one makes.
	{sideBySide(importRelease, 2), "int64", oneGoroutine, 1, 1, 1, 2},
	{sideBySide(importRelease, 2), "int64", oneGoroutine, 10, 1.05, 1, 2},
	{sideBySide(importRelease, 2), "int64", oneGoroutine, 100, 1.3, 1, 2},
	{sideBySide(importRelease, 4), "int64", oneGoroutine, 1, 1.4, 1, 4},
	{sideBySide(importRelease, 4), "int64", oneGoroutine, 100, 2.2, 1, 4},
	{sideBySide(exportToC, 2), "int64", oneGoroutine, 1, 1.3, 0, 2},
	{sideBySide(exportToC, 2), "int64", oneGoroutine, 100, 1.3, 0, 2},
	{sideBySide(exportToC, 4), "int64", oneGoroutine, 1, 1.8, 0, 4},
	{sideBySide(exportToC, 4), "int64", oneGoroutine, 100, 1.8, 0, 4},
	{sideBySide(wrapToC, 2), "int64", oneGoroutine, 1, 1, 2, 2},
	{sideBySide(wrapToC, 2), "int64", oneGoroutine, 100, 1, 2, 2},
	// Goroutines that export the same batch share its count.
	{sideBySide(exportOfOne, 2), "int64", oneGoroutine, 1, 0.4, 0, 2},
	{sideBySide(exportOfOne, 2), "int64", oneGoroutine, 100, 0.4, 0, 2},
}...)

// attempts is the number of measurements of a ratio, in rounds of their own, before its promise
// counts as broken. The best one counts: other load of the machine makes some measurements worse,
// while the cost of this library is in all of them.
const attempts = 5

// cores is how many goroutines this machine runs at the same time.
var cores = runtime.GOMAXPROCS(0)

// promisesHold prints which promises hold. Where a ratio is missed, again measures it again.
func promisesHold(w io.Writer, results []Result, again func(promise) []Result) bool {
	all := true
	for _, p := range promises {
		if cores < p.cores {
			fmt.Fprintf(w, "not checked: %s, %s x %d against %s: it takes %d cores, and this machine has %d\n",
				p.operation, p.shape, p.columns, p.peer, p.cores, cores)
			continue
		}
		if missing(p.peer) {
			fmt.Fprintf(w, "not checked: %s, %s x %d against %s, which is not there\n", p.operation, p.shape, p.columns, p.peer)
			continue
		}
		text, ok := p.check(results, again)
		word := "holds"
		if !ok {
			word, all = "BROKEN", false
		}
		fmt.Fprintf(w, "%s: %s, %s x %d against %s: %s\n", word, p.operation, p.shape, p.columns, p.peer, text)
	}
	return all
}

// check returns the measured value as text, and reports whether the promise holds.
func (p promise) check(results []Result, again func(promise) []Result) (text string, ok bool) {
	best, found := p.find(results)
	if !found {
		return "not measured", false
	}
	measured, ratio := 1, best.ratio()
	for ; measured < attempts && ratio < p.least; measured++ {
		if r, found := p.find(again(p)); found {
			ratio = max(ratio, r.ratio())
		}
	}
	text = fmt.Sprintf("ratio %.2f (at least %.2f), allocations %.1f (at most %.0f)", ratio, p.least, best.Allocs, p.allocs)
	if measured > 1 {
		text += fmt.Sprintf("; the best of %d measurements", measured)
	}
	return text, ratio >= p.least && best.Allocs <= p.allocs+0.5
}

// filter selects what the promise is about.
func (p promise) filter() filter {
	return filter{operation: exactly(p.operation), shape: exactly(p.shape), peer: exactly(p.peer), columns: []int{p.columns}}
}

// find returns the row that the promise is about.
func (p promise) find(results []Result) (Result, bool) {
	for _, r := range results {
		if r.Operation == p.operation && r.Shape == p.shape && r.Columns == p.columns && r.Peer == p.peer {
			return r, true
		}
	}
	return Result{}, false
}
