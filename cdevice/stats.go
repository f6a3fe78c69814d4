package cdevice

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Stats counts the objects that are alive between the Go and C sides of this process. All counts
// are zero after a program has released everything; tests compare two readings.
//
// A count falls when the release is over: after the producer's release callback has returned, or
// this package's own work is done. A program that has waited for zeros may unload the producer's
// library.
//
// A reading takes a while. Objects that other goroutines and threads begin and end meanwhile may be counted, too; none that
// is alive all the while is left out.
type Stats struct {
	Batches         int64 // batches and arrays that this program has not released
	ExportedArrays  int64 // exported array trees that a consumer has not fully released
	ExportedBlocks  int64 // C allocations of exported arrays and schemas that a consumer has not fully released
	ImportedArrays  int64 // imported arrays that were not yet released
	ExportedStreams int64 // exported streams that a consumer has not released
	ImportedStreams int64 // imported streams that were not yet released
	AsyncStreams    int64 // handlers of AsyncStream that were not released
	AsyncProducers  int64 // producers of ExportAsync that have not ended, or whose tasks have not
	AsyncTasks      int64 // tasks of those producers that were not extracted
	PinnedBatches   int64 // batches and arrays that keep memory of the Go heap pinned for C
	Readers         int64 // readers that were not released, or whose source is still in use
	DeviceCopies    int64 // copies of batches and arrays in device memory that was not freed
	Goroutines      int64 // goroutines of this package: prefetchers, iterators, asynchronous streams, closing readers
}

// String lists the counts that are not zero. While tracing is off, it says how to find what they count.
func (s Stats) String() string {
	var b strings.Builder
	counts := reflect.ValueOf(s)
	for i := range counts.NumField() {
		if n := counts.Field(i).Int(); n != 0 {
			fmt.Fprintf(&b, "%s:%d ", counts.Type().Field(i).Name, n)
		}
	}
	switch {
	case b.Len() == 0:
		return "nothing alive"
	case !live.Tracing():
		b.WriteString("(tracing is off: set CDEVICE_TRACE=1 or call TraceObjects, and LiveObjects lists them)")
	}
	return strings.TrimSpace(b.String())
}

// ReadStats returns the current counts.
func ReadStats() Stats {
	return Stats{
		Batches:         liveBatches.Sum(),
		ExportedArrays:  bridge.Exports(),
		ExportedBlocks:  bridge.Blocks(),
		ImportedArrays:  tree.ImportedLive.Sum(),
		ExportedStreams: exportedStreams.Load(),
		ImportedStreams: importedStreams.Load(),
		AsyncStreams:    asyncStreams.Load(),
		AsyncProducers:  asyncProducers.Load(),
		AsyncTasks:      asyncTasks.Load(),
		PinnedBatches:   bridge.Pinned.Sum(),
		Readers:         items.LiveReaders.Load(),
		DeviceCopies:    copyplan.DeviceCopies.Load(),
		Goroutines:      items.Goroutines.Load(),
	}
}
