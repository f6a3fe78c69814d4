package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// extra is a mutant that no call of a wait shows: text of a file, found once, and what
// stands there instead.
type extra struct {
	file, function, removed string
	old, new                string
}

var extras = []extra{
	{
		"cdevice/transfer.go", "copyTo", "the event of a copy",
		"at.event = mem.block.setEvent(d.event.Handle())", "_ = mem.block.setEvent(d.event.Handle())",
	},
	{
		"cdevice/transfer.go", "source.enqueue", "page-locked sources are kept",
		"kept = kept || d.dev.PageLocked(device.Ptr(p.addr), p.size)", "_ = d.dev.PageLocked(device.Ptr(p.addr), p.size)",
	},
	{
		"cdevice/transfer.go", "source.enqueue", "device sources are kept",
		"kept = kept || len(copies) > 0", "kept = kept || len(copies) < 0",
	},
	{
		"cdevice/export.go", "exportTree", "the event of an export's own",
		"at.event = uintptr(unsafe.Pointer(&block.event))", "_ = uintptr(unsafe.Pointer(&block.event))",
	},
	{
		"cdevice/export.go", "exportTree", "sync_event of an export",
		"out.SyncEvent = at.event", "out.SyncEvent = 0",
	},
	{
		"cdevice/import.go", "placeOf", "sync_event of an import",
		"event: arr.SyncEvent}", "event: 0}",
	},
	{
		"cdevice/new.go", "newNodes", "the event of the caller's memory",
		"at.event = uintptr(unsafe.Pointer(cell))", "_ = uintptr(unsafe.Pointer(cell))",
	},
}

// extraMutants applies the list; text that is not there, or more than once, is an error.
func extraMutants(root string) (list []*mutant, err error) {
	for _, e := range extras {
		source, err := os.ReadFile(filepath.Join(root, e.file))
		if err != nil {
			return nil, err
		}
		if n := bytes.Count(source, []byte(e.old)); n != 1 {
			return nil, fmt.Errorf("extra.go: %s has %q %d times, want once", e.file, e.old, n)
		}
		at := bytes.Index(source, []byte(e.old))
		list = append(list, &mutant{
			file: e.file, line: lineOf(source, at), function: e.function, removed: e.removed,
			instead: e.new, content: splice(source, at, at+len(e.old), e.new),
		})
	}
	return list, nil
}

// equivalent is a mutant that no test can kill: the first of its name in its function.
type equivalent struct{ file, function, removed, why string }

const (
	endsAnyTime = "an event or a stream is destroyed without a wait: the reaper only tries again what failed"
	synced      = "the reaper has synchronised the context: any stream is behind all work"
)

var equivalents = []equivalent{
	{"memory/cudaalloc/across.go", "gpu.detour", "other.reaper.later(other, func)", endsAnyTime},
	{"memory/cudaalloc/across.go", "follow", "first.reaper.later(first, func)", endsAnyTime},
	{"memory/cudaalloc/handle.go", "handle.finish", "h.gpu.reaper.later(h.gpu, end)", endsAnyTime},
	{"memory/cudaalloc/upload.go", "record", "gpu.reaper.later(gpu, func)", endsAnyTime},
	{"memory/cudaalloc/upload.go", "staging.land", "gpu.reaper.later(gpu, func)", endsAnyTime},
	{"memory/cudaalloc/memory.go", "memory.end", "stream d.background", synced},
	{"cdevice/transfer.go", "deviceMemory.Release", "stream s", synced},
}

// markEquivalent marks what the list names; a row that names nothing is an error.
func markEquivalent(all []*mutant) error {
	for _, e := range equivalents {
		i := slices.IndexFunc(all, func(m *mutant) bool {
			return m.file == e.file && m.function == e.function && m.removed == e.removed
		})
		if i < 0 {
			return fmt.Errorf("extra.go: the equivalent %s %s %q names no mutant", e.file, e.function, e.removed)
		}
		all[i].equivalent = e.why
	}
	return nil
}
