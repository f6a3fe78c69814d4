package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// extra is a mutant that is not a call of a wait: a text that occurs once in a file, and its
// replacement.
type extra struct {
	file, function, removed string
	old, new                string
}

var extras = []extra{
	{
		"internal/gpu/deferred.go", "Deferred.sweep", "an event that cannot be asked proves nothing",
		"case done || isGone(err):", "case done || err != nil:",
	},
	{
		"internal/gpu/synchronizer.go", "Synchronizer.synchronize", "a context that cannot be synchronised proves nothing",
		"if done && (err == nil || gone && isGone(err)) {", "if done {",
	},
	{
		"internal/gpu/synchronizer.go", "Synchronizer.trySynchronize", "synchronisation is held",
		"if y.holds.Load() > 0 {", "if y.holds.Load() > 1<<40 {",
	},
	{
		"internal/gpu/synchronizer.go", "Synchronizer.trySynchronize", "captures are asked for",
		"done, err = y.synchronizeUncaptured(keys)", "done, err = true, y.ctx.Synchronize()",
	},
	{
		"internal/gpu/deferred.go", "Deferred.finish", "functions of callers are called apart",
		"calls.run(func() { one.run(d.ctx, &d.guard, func() { d.ended(one, gone) }) })", "one.run(d.ctx, &d.guard, func() { d.ended(one, gone) })",
	},
	{
		"internal/gpu/synchronizer.go", "Synchronizer.Hold", "the synchronisation that is under way",
		"case y.turn <- struct{}{}:\n\t\t<-y.turn\n", "default:\n",
	},
	{
		"internal/gpu/streams.go", "Streams.end", "streams live while they are asked about",
		"if l.asking && l.answered.Load() == 0 {", "if l.asking && !l.asking {",
	},
	{
		"internal/gpu/reclaim.go", "Heap.trimUntil", "an allocation waits for what was freed",
		"ended := isClosed(idle) && h.deferred.count.Load() == 0", "ended := isClosed(idle) || h.deferred.count.Load() >= 0",
	},
	{
		"internal/sizeclass/cache.go", "Cache.Take", "a full cache waits",
		"if err := c.untilChanged(ctx); err != nil {", "if err := error(ErrLimit); err != nil {",
	},
	{
		"internal/copyplan/stream.go", "copyStream", "a copy has a stream of its own",
		"newCopyStream(dev)", "dev.WrapStream(0)",
	},
	{
		"internal/copyplan/todevice.go", "ToDevice", "the event of a copy",
		"at.Event = mem.Block.SetEvent(d.event.Handle())", "_ = mem.Block.SetEvent(d.event.Handle())",
	},
	{
		"internal/copyplan/todevice.go", "deviceMemory.fill", "page-locked sources are kept",
		"kept = kept || later", "_ = later",
	},
	{
		"internal/copyplan/todevice.go", "deviceMemory.fill", "device sources are kept",
		"kept = kept || len(copies.list) > 0", "kept = kept || len(copies.list) < 0",
	},
	{
		"internal/copyplan/sanitize.go", "notEmpty", "null lists and strings are empty",
		"!valid(i) && offsets[i] != offsets[i+1]", "!valid(i) && offsets[i] > offsets[i+1]",
	},
	{
		"internal/copyplan/sanitize.go", "sanitizer.validBelow", "children of null structs are null",
		"!valid(i) && validChild(int(n.Offset)+i)", "!valid(i) && !validChild(int(n.Offset)+i)",
	},
	{
		"internal/copyplan/sanitize.go", "sanitizer.validBelow", "the offset of a struct counts for its children",
		"validChild(int(n.Offset)+i)", "validChild(i)",
	},
	{
		"internal/copyplan/sanitize.go", "sanitizer.bad", "nulls of a dictionary are looked for",
		"bad = mayHaveNulls(&n.Children[0]) && hostread.CountNulls(&n.Children[0]) > 0", "bad = mayHaveNulls(&n.Children[0]) && hostread.CountNulls(&n.Children[0]) < 0",
	},
	{
		"cdevice/event.go", "recordEvent", "the recorded event",
		"at.Event = uintptr(unsafe.Pointer(&recorded.handle))", "_ = uintptr(unsafe.Pointer(&recorded.handle))",
	},
	{
		"cdevice/export.go", "export", "sync_event of an export",
		"out.SyncEvent = at.Event", "out.SyncEvent = 0",
	},
	{
		"internal/cstruct/input.go", "SetDevice", "sync_event of an import",
		"in.Array, in.Event = &arr.Array, arr.SyncEvent", "in.Array, in.Event = &arr.Array, 0",
	},
	{
		"cdevice/new.go", "newNodes", "the event of the caller's memory",
		"at.Event = uintptr(unsafe.Pointer(cell))", "_ = uintptr(unsafe.Pointer(cell))",
	},
}

// extraMutants applies the list; text that is not there, or more than once, is an error.
func extraMutants(root string) (list []*mutant, err error) {
	for _, e := range slices.Concat(extras, processExtras) {
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

var equivalents []equivalent // there are none

// markEquivalent marks the mutants that the list names; a row without a mutant is an error.
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
