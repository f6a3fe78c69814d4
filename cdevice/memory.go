package cdevice

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
)

// memoryOwner keeps alive what the buffers of a batch point into, for as long as
// anybody uses it: batches and arrays, their slices and columns, host views,
// and C structs that were exported from any of them. Each holds one reference.
//
// What it owns is either a foreign struct (imported), released through its
// callback, or Go values (wrapped), pinned once and released through Go.
type memoryOwner struct {
	refs refcount.Count

	imported abi.ArrowArray // moved here from the producer's struct; Release 0 if wrapped
	// releaseWith, unless it is nil, is given the calling of the producer's callback.
	releaseWith func(release func())

	// event is what release of imported waits for: WithReleaseAfterEvent. It is borrowed of the
	// producer, whose release ends it.
	event device.Event

	wrapped handle.Releaser // the arrow.RecordBatch or arrow.Array, or a copy's deviceMemory
	// home is the device in whose memory wrapped arrays are; nil for plain host memory.
	home  device.Device
	block *block         // what is known of a copy's memory
	pins  runtime.Pinner // Go memory whose addresses exported structs hold
	// rooted keeps an owner with pins reachable until its last Release. The
	// runtime ends the process when it collects a Pinner that still pins; a batch
	// that somebody forgot to release must be a leak, not a crash.
	rooted handle.Word

	// users are the devices on which work may use the memory that nobody waits for:
	// it is let go after that.
	mu    sync.Mutex
	users []device.Device
}

var importedLive, rootedLive atomic.Int64

// adoptGo returns an owner of a reference to Go values; it takes that reference.
func adoptGo(v handle.Releaser) *memoryOwner {
	m := &memoryOwner{wrapped: v}
	m.refs.Init("memory of a batch")
	return m
}

// pin pins one Go object until the last Release. Addresses of C memory are
// allowed and cost next to nothing. Only the constructor of an owner calls it.
func (m *memoryOwner) pin(pointer any) {
	m.pins.Pin(pointer)
	if m.rooted == 0 {
		m.rooted = handle.New(m)
		rootedLive.Add(1)
	}
}

// adopt moves a foreign struct into a new owner and marks the source released.
func adopt(a *abi.ArrowArray) *memoryOwner {
	m := &memoryOwner{imported: *a}
	m.refs.Init("memory of a batch")
	a.Release = 0
	importedLive.Add(1)
	return m
}

// retain adds a reference to memory that somebody holds. Memory that was let go
// cannot come back: using it after the last release is a bug of the program,
// better seen here than as a crash later.
func (m *memoryOwner) retain() *memoryOwner {
	m.refs.Retain()
	return m
}

// usedOn notes that work of dev may use the memory from now on.
func (m *memoryOwner) usedOn(dev device.Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.users, dev) {
		m.users = append(m.users, dev)
	}
}

// lend notes that the memory is exported: a consumer may use it on streams that are not
// known here, and release it in the order of its stream. The release of memory that lives
// on a device then waits for the work of that device, whichever kind of memory it is: an
// allocator of page-locked memory would give it to the next user at once. Memory of a
// producer, and of a caller of NewArray, has a release rule of its own.
func (m *memoryOwner) lend() {
	home := m.home
	switch w := m.wrapped.(type) {
	case *deviceMemory:
		home = w.dev
	case *recordedEvent:
		w.mem.lend()
	}
	if home != nil {
		m.usedOn(home)
	}
}

// Release drops one reference. The last one lets the memory go: at once, on the
// calling thread, or, where work of a device may be using it, after that work, on a
// goroutine of the device's. It has this name because the handle of a pinned owner
// holds it.
func (m *memoryOwner) Release() {
	if m.refs.Release() {
		m.endAfter(m.users)
	}
}

// endAfter ends the owner after the work that these devices have now.
func (m *memoryOwner) endAfter(users []device.Device) {
	if len(users) == 0 {
		m.endAfterEvent()
		return
	}
	users[0].AfterWork(func() { m.endAfter(users[1:]) })
}

// endAfterEvent ends the owner once the event is complete that release waits for, if there
// is one.
func (m *memoryOwner) endAfterEvent() {
	event := m.event
	if event == nil {
		m.end()
		return
	}
	m.event = nil
	defer closeEvent(event)
	event.OnComplete(m.end)
}

func (m *memoryOwner) end() {
	if m.imported.Release != 0 {
		if m.releaseWith == nil {
			m.releaseImported()
		} else {
			m.releaseWith(m.releaseImported)
		}
	}
	if m.rooted != 0 {
		m.pins.Unpin()
		handle.Take(m.rooted)
		rootedLive.Add(-1)
	}
	if m.wrapped != nil {
		m.wrapped.Release()
		m.wrapped = nil
	}
}

func (m *memoryOwner) releaseImported() {
	a := &m.imported
	if m.releaseWith != nil || m.users != nil || m.rooted != 0 {
		// A callback that is written in Go may pass the struct to C, and cgo searches the
		// object that it stands in for Go pointers.
		apart := m.imported
		a = &apart
	}
	bridge.CallArrayRelease(a)
	importedLive.Add(-1)
}

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
	Goroutines      int64 // goroutines of this package: prefetchers, iterators, asynchronous producers, closing readers
}

// ReadStats returns the current counts.
func ReadStats() Stats {
	return Stats{
		ExportedArrays:  bridge.Trees(),
		ExportedBlocks:  bridge.Blocks(),
		ImportedArrays:  importedLive.Load(),
		ExportedStreams: exportedStreams.Load(),
		ImportedStreams: importedStreams.Load(),
		AsyncStreams:    asyncStreams.Load(),
		AsyncProducers:  asyncProducers.Load(),
		AsyncTasks:      asyncTasks.Load(),
		PinnedBatches:   rootedLive.Load(),
		Readers:         liveReaders.Load(),
		DeviceCopies:    deviceCopies.Load(),
		Goroutines:      goroutines.Load(),
	}
}
