//go:build cgo

package main

import (
	"bytes"
	"runtime"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("stats", stats)
	pyextension.Func("gc", runtime.GC)
	// What C holds without a pin or a reference is gone when C reads it next.
	pyextension.Func("free_memory", debug.FreeOSMemory)
}

// stats returns the live objects of this library, beside those that pyextension counts. A test that released everything
// finds the same numbers as before.
func stats() map[string]int64 {
	handles.Lock()
	defer handles.Unlock()
	return map[string]int64{
		"handles":        int64(len(handles.live)),
		"bytes":          int64(allocator.CurrentAlloc()),
		"sources":        sources.Load(),
		"all_goroutines": goroutines(),
	}
}

// goroutines counts those of go statements, but for the calls of pyextension. runtime.NumGoroutine also counts every
// foreign thread that has called into Go, until it ends: pools of other libraries keep theirs.
func goroutines() int64 {
	const created = "\ncreated by "
	for size := 64 << 10; ; size *= 2 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size {
			all := bytes.Count(stacks[:n], []byte(created))
			calls := bytes.Count(stacks[:n], []byte(created+"github.com/arrowdevice/arrowdevice/pyextension."))
			return int64(all - calls)
		}
	}
}
