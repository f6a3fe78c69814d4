package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// exportOfOne is the export of a batch that other goroutines export too.
const exportOfOne = "export of one batch, released in C"

// oneGoroutine is the baseline: the ratio compares operations per second, so that the number of
// goroutines is the maximum.
const oneGoroutine = "1 goroutine"

// oneThread ends the name of a peer that does on one thread what it also does on several.
const oneThread = ", 1 thread"

// sideBySide is the name of an operation that so many goroutines do.
func sideBySide(name string, goroutines int) string {
	return fmt.Sprintf("%s, %d goroutines", name, goroutines)
}

// starter opens what one goroutine does.
type starter func(s shape) (do func(n int), end func())

// inParallel is an operation that goroutines do, beside the same on one goroutine, and beside arrow-go's package. The
// peers in other languages do it on as many threads.
func inParallel(goroutines int, name string, open, openTheirs starter) func(shape) operation {
	return func(s shape) operation {
		all, end := started(s, goroutines, open)
		theirs, endTheirs := started(s, goroutines, openTheirs)
		return operation{
			ours: side{do: divide(all)},
			peers: append([]peer{
				{name: oneGoroutine, do: all[0]},
				{name: "cdata", do: divide(theirs), close: endTheirs},
				{name: "cdata" + oneThread, do: theirs[0]},
			}, s.othersInParallel(goroutines, name)...),
			close: end,
		}
	}
}

func started(s shape, goroutines int, open starter) (all []func(n int), end func()) {
	var ends []func()
	for range goroutines {
		do, end := open(s)
		all, ends = append(all, do), append(ends, end)
	}
	return all, inOrder(ends)
}

// divide does n operations on as many goroutines as there are functions.
func divide(all []func(n int)) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		for i, do := range all {
			wg.Go(func() { do((n + i) / len(all)) })
		}
		wg.Wait()
	}
}

// othersInParallel are the peers, each with a batch of its own on each thread.
func (s shape) othersInParallel(threads int, name string) (out []peer) {
	byName := map[string][]peer{}
	for range threads {
		for _, p := range append(s.floor(name, false), s.others(name, false)...) {
			byName[p.name] = append(byName[p.name], p)
		}
	}
	for _, name := range []string{cFloor, goFloor, arrowCPP, nanoarrow, arrowRS} {
		if all := byName[name]; len(all) > 0 {
			out = append(out, together(all), peer{name: name + oneThread, do: all[0].do})
		}
	}
	return out
}

// together is several operations of a peer as one.
func together(all []peer) peer {
	var do []func(n int)
	for _, p := range all {
		do = append(do, p.do)
	}
	return peer{name: all[0].name, do: divide(do), close: func() {
		for _, p := range all {
			p.end()
		}
	}}
}

// ownBatch exports a batch that no other goroutine has.
func ownBatch(of exporter) starter {
	return func(s shape) (do func(n int), end func()) {
		recs := s.batches(1)
		do, endExports := exports(recs, false, of)
		return do, func() {
			endExports()
			releaseAll(recs)
		}
	}
}

// sharedBatch exports the batch of the shape.
func sharedBatch(s shape) (do func(n int), end func()) {
	return exports([]arrow.RecordBatch{s.rec}, false, func(arrow.RecordBatch) (func(*cdevice.CArrowDeviceArray), func()) {
		return func(out *cdevice.CArrowDeviceArray) { check(cdevice.ExportRecordBatch(s.batch, out, nil)) }, func() {}
	})
}

func sharedByCdata(s shape) (do func(n int), end func()) {
	return exports([]arrow.RecordBatch{s.rec}, false, cdataExport)
}

// goroutineOperations are the measurements of more goroutines than one.
func goroutineOperations(sub subject) (all []measurement) {
	if sub.name != "int64" || sub.columns > 1000 {
		return nil
	}
	for _, n := range goroutineCounts(cores) {
		all = append(all,
			measurement{sideBySide(exportToC, n), inParallel(n, exportToC, ownBatch(exportAgain), ownBatch(cdataExport))},
			measurement{sideBySide(exportOfOne, n), inParallel(n, "", sharedBatch, sharedByCdata)},
			measurement{sideBySide(wrapToC, n), inParallel(n, wrapToC, ownBatch(wrapAndExport), ownBatch(cdataExport))},
			measurement{sideBySide(importRelease, n), inParallel(n, importRelease, importer, cdataImporter)})
	}
	return all
}

// goroutineCounts are the numbers of goroutines to measure: 2, 4 and one for each core. Of more than the machine has
// cores, some wait for others.
func goroutineCounts(cores int) (all []int) {
	for _, n := range []int{2, 4, cores} {
		if n > 1 && n <= cores && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}
