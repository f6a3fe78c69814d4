//go:build cdata_integration

package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// allocated is 0 if nothing is in use: the bytes of batches that were read from JSON, those of GPU
// memory, and one for each live object of cdevice, because an empty batch has no bytes.
func allocated() int64 {
	n := int64(allocator.CurrentAlloc())
	if opened != nil {
		s := opened.ReadStats()
		n += s.Device.Live + s.Pinned.Live + s.Managed.Live
	}
	s := cdevice.ReadStats()
	for _, live := range []int64{
		s.ExportedArrays, s.ExportedBlocks, s.ImportedArrays, s.ExportedStreams, s.ImportedStreams,
		s.AsyncStreams, s.AsyncProducers, s.AsyncTasks, s.PinnedBatches, s.Readers, s.DeviceCopies, s.Goroutines,
	} {
		n += live
	}
	return n
}

// collect makes deferred frees happen. Nothing of cdevice is freed by the garbage collector.
func collect() {
	runtime.GC()
	if opened == nil {
		return
	}
	if err := opened.Trim(context.Background()); err != nil {
		panic(fmt.Errorf("trimming the GPU: %w", err))
	}
}
