package main

// #include "capsule.h"
import "C"

import (
	"bytes"
	"runtime"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// golib_stats returns the live objects of the Go side. A test that released everything finds the
// same numbers as before.
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
			"goroutines":       goroutines(),
		}, nil
	})
}

// goroutines counts those of go statements. runtime.NumGoroutine also counts every foreign
// thread that has called into Go, until it ends: pools of other libraries keep theirs.
func goroutines() int64 {
	for size := 64 << 10; ; size *= 2 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size {
			return int64(bytes.Count(stacks[:n], []byte("\ncreated by ")))
		}
	}
}

// golib_gc collects Go's garbage and returns it to the system, so that memory
// which C holds without a pin or a reference is gone when C reads it next.
//
//export golib_gc
func golib_gc() { debug.FreeOSMemory() }
