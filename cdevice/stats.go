package cdevice

import (
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/items"

	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Stats counts what is alive between this process's Go and C sides. A program
// that released everything sees zeros; tests compare two readings.
//
// Each count falls when the release it counts is over: the producer's release callback has
// returned, or the work of ours has been done. A program that waits for zeros may then
// unload the producer's library.
type Stats struct {
	ExportedArrays  int64 // exported array trees that a consumer has not fully released
	ExportedBlocks  int64 // C allocations of exported arrays and schemas
	ImportedArrays  int64 // foreign arrays that were imported and not yet released
	ExportedStreams int64 // exported streams that a consumer has not released
	ImportedStreams int64 // foreign streams that were imported and not yet released
	AsyncStreams    int64 // handlers of AsyncStreams that were not released
	AsyncProducers  int64 // producers of ExportAsync that have not ended, or have tasks
	AsyncTasks      int64 // their tasks that were not extracted
	PinnedBatches   int64 // batches and arrays that keep memory of the Go heap pinned for C
	Readers         int64 // RecordReaders and ArrayReaders that were not released, or whose source is still in use
	DeviceCopies    int64 // copies in memory of a device, of batches and arrays, that were not given back to it
	Goroutines      int64 // Goroutines of this package: prefetchers, iterators, asynchronous producers, closing readers
}

// ReadStats returns the current counts.
func ReadStats() Stats {
	return Stats{
		ExportedArrays:  bridge.Trees(),
		ExportedBlocks:  bridge.Blocks(),
		ImportedArrays:  tree.ImportedLive.Load(),
		ExportedStreams: exportedStreams.Load(),
		ImportedStreams: importedStreams.Load(),
		AsyncStreams:    asyncStreams.Load(),
		AsyncProducers:  asyncProducers.Load(),
		AsyncTasks:      asyncTasks.Load(),
		PinnedBatches:   tree.RootedLive.Load(),
		Readers:         items.LiveReaders.Load(),
		DeviceCopies:    copyplan.DeviceCopies.Load(),
		Goroutines:      items.Goroutines.Load(),
	}
}
