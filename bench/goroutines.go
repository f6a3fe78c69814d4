package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// exportOfOne is the export of a batch that other goroutines export too.
const exportOfOne = "export+release of one batch"

// oneGoroutine is the baseline: the ratio compares operations per second, so that the number of
// goroutines is the maximum.
const oneGoroutine = "1 goroutine"

// oneThread ends the name of a peer that does on one thread what it also does on several.
const oneThread = ", 1 thread"

// sideBySide is the name of an operation that so many goroutines do.
func sideBySide(name string, goroutines int) string {
	return fmt.Sprintf("%s, %d goroutines", name, goroutines)
}

// exporter exports a batch into a struct that no other exporter has.
type exporter struct {
	batch *cdevice.RecordBatch
	out   *carray
}

func newExporter(s shape) exporter {
	s.batch.Retain()
	return exporter{batch: s.batch, out: new(carray)}
}

func (e exporter) do(n int) {
	for range n {
		check(cdevice.ExportRecordBatch(e.batch, &e.out.CArrowDeviceArray, nil))
		cdevice.ReleaseStruct(&e.out.CArrowDeviceArray)
	}
}

// importer imports the batches of a producer that no other importer has.
func importer(s shape) (do func(n int), end func()) {
	in, producer := new(carray), s.producer()
	schema := s.rec.Schema()
	do = func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			must(cdevice.ImportRecordBatchWithSchema(&in.CArrowDeviceArray, schema)).Release()
		}
	}
	return do, producer.Close
}

// inParallel is an operation that goroutines do, of which each begins with open. The peers do the same on as many threads.
func inParallel(goroutines int, name string, open func(s shape) (do func(n int), end func())) func(shape) operation {
	return func(s shape) operation {
		var all []func(n int)
		var ends []func()
		for range goroutines {
			do, end := open(s)
			all, ends = append(all, do), append(ends, end)
		}
		return operation{
			ours:  side{do: divide(all)},
			peers: append([]peer{{name: oneGoroutine, do: all[0]}}, s.othersInParallel(goroutines, name)...),
			close: func() {
				for _, end := range ends {
					end()
				}
			},
		}
	}
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
		for _, p := range append(s.floor(name), s.others(name)...) {
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

func ownExporter(s shape) (do func(n int), end func()) {
	batch := must(cdevice.WrapRecordBatch(s.rec, device.CPUDevice()))
	return exporter{batch: batch, out: new(carray)}.do, batch.Release
}

func sharedExporter(s shape) (do func(n int), end func()) {
	e := newExporter(s)
	return e.do, e.batch.Release
}

// goroutineOperations are the measurements of more goroutines than one.
func goroutineOperations(sub subject) (all []measurement) {
	if sub.name != "int64" || sub.columns > 100 {
		return nil
	}
	for _, n := range goroutineCounts(cores) {
		all = append(all,
			measurement{sideBySide(exportRelease, n), inParallel(n, exportRelease, ownExporter)},
			measurement{sideBySide(exportOfOne, n), inParallel(n, "", sharedExporter)},
			measurement{sideBySide(importRelease, n), inParallel(n, importRelease, importer)})
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
