package main

// #include "capsule.h"
import "C"

import (
	"runtime"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// golib_stats answers with what is alive on the Go side. A test that released
// everything finds what it found before.
//
//export golib_stats
func golib_stats(out **C.char) *C.char {
	return answer(out, func() (any, error) {
		objects.Lock()
		handles := len(objects.live)
		objects.Unlock()
		s := cdevice.ReadStats()
		return map[string]int64{
			"handles":          int64(handles),
			"structs":          int64(C.golib_struct_count()),
			"bytes":            int64(allocator.CurrentAlloc()),
			"exported_arrays":  s.ExportedArrays,
			"exported_blocks":  s.ExportedBlocks,
			"imported_arrays":  s.ImportedArrays,
			"exported_streams": s.ExportedStreams,
			"imported_streams": s.ImportedStreams,
			"sources":          sources.Load(),
			"pinned_batches":   s.PinnedBatches,
			"async_streams":    s.AsyncStreams,
			"async_producers":  s.AsyncProducers,
			"async_tasks":      s.AsyncTasks,
			"async_handles":    asyncHandles.Load(),
			"readers":          s.Readers,
			"device_copies":    s.DeviceCopies,
			"cdevice_routines": s.Goroutines,
			"goroutines":       int64(runtime.NumGoroutine()),
		}, nil
	})
}

// golib_gc collects Go's garbage and returns it to the system, so that memory
// which C holds without a pin or a reference is gone when C looks at it next.
//
//export golib_gc
func golib_gc() { debug.FreeOSMemory() }
