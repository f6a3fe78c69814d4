package tree

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

// Owner keeps the memory of the buffers of a batch alive. Batches and arrays, their slices and
// columns and host views hold one reference each. C structs that were exported from any of them keep
// the memory alive without: see Export.
//
// It owns either a foreign struct (imported), which its callback releases, or Go values (wrapped),
// which are pinned once for C (runtime.Pinner).
type Owner struct {
	refs refcount.Count

	imported abi.ArrowArray // moved here from the producer's struct; Release 0 if wrapped
	// ReleaseWith, unless it is nil, gets the producer's callback to call, instead of a direct
	// call: WithReleaser.
	ReleaseWith func(release func())

	// Event is complete before imported is released: WithReleaseAfterEvent. It is the producer's,
	// whose release ends it.
	Event device.Event

	wrapped handle.Releaser // the arrow.RecordBatch or arrow.Array, or a copy's deviceMemory
	// Home is the device of the memory of wrapped arrays; nil for plain CPU memory.
	Home  device.Device
	Block *Block         // describes the memory of a copy; nil otherwise
	pins  runtime.Pinner // Go memory whose addresses exported structs hold
	// rooted keeps an owner with pins reachable until its last Release. The runtime ends the
	// process when it collects a Pinner that still pins. A missing release must be a leak, not a
	// crash.
	rooted handle.Word

	// users are the devices whose work may use the memory: its release is deferred until their
	// pending work completes.
	mu    sync.Mutex
	users []device.Device

	exports atomic.Pointer[bridge.Exports] // nil until the first export; set under mu
}

// ImportedLive counts imported structs that were not released, RootedLive owners with pinned Go memory.
var ImportedLive, RootedLive atomic.Int64

// Own returns an owner of a reference to Go values; it takes that reference.
func Own(v handle.Releaser) *Owner {
	m := &Owner{wrapped: v}
	m.refs.Init("memory of a batch")
	return m
}

// Pin pins one Go object until the last Release. An address of C memory is allowed and costs almost
// nothing. Only code that makes the owner calls it.
func (m *Owner) Pin(pointer any) {
	m.pins.Pin(pointer)
	if m.rooted == 0 {
		m.rooted = handle.New(m)
		RootedLive.Add(1)
	}
}

// Adopt moves a foreign struct into a new owner and marks the source released.
func Adopt(a *abi.ArrowArray) *Owner {
	m := new(Owner)
	m.Adopt(a)
	return m
}

// Adopt makes m, which is zero, the owner of a foreign struct. It moves the struct and marks the
// source released.
func (m *Owner) Adopt(a *abi.ArrowArray) {
	m.imported = *a
	m.refs.Init("memory of a batch")
	a.Release = 0
	ImportedLive.Add(1)
}

// Imported returns the foreign struct. It is valid while the caller holds a reference.
func (m *Owner) Imported() *abi.ArrowArray { return &m.imported }

// Retain adds a reference for a caller that holds one. After the last Release it panics, rather
// than letting the program use freed memory.
func (m *Owner) Retain() *Owner {
	m.refs.Retain()
	return m
}

// TryRetain adds a reference, and reports whether there was one.
func (m *Owner) TryRetain() bool { return m.refs.TryRetain() }

// UsedOn records that work of dev may use the memory from now on.
func (m *Owner) UsedOn(dev device.Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.users, dev) {
		m.users = append(m.users, dev)
	}
}

// exportMarker is memory that defers its release when it is exported.
type exportMarker interface{ MarkExported(*Owner) }

// MarkExported defers the release of device memory until pending work of the device completes:
// a consumer may use it on streams unknown to us, and release it in the order of its stream.
// That holds for every kind of memory: an allocator of pinned memory would give it to the next
// user at once. Memory of a producer, and of a caller of NewArray, has a release rule of its own.
func (m *Owner) MarkExported() {
	if w, ok := m.wrapped.(exportMarker); ok {
		w.MarkExported(m)
	}
	if m.Home != nil {
		m.UsedOn(m.Home)
	}
}

// Release drops one reference. The last one releases the memory: at once, on the calling thread,
// or, if work of a device may be using it, after that work, on a goroutine of the device's backend.
// It implements handle.Releaser, since the handle of a pinned owner holds the owner.
func (m *Owner) Release() {
	if !m.refs.Release() {
		return
	}
	if e := m.exports.Load(); e != nil {
		if !e.Close() {
			return // the last exported tree ends the memory
		}
		e.Free()
	}
	m.endAfter(m.users)
}

// Export returns the block of C memory of another exported tree, size bytes with its head, or nil
// without memory. The tree keeps the memory alive as a reference does. The caller holds one.
//
// At most one block is kept for later exports of the owner, until the owner ends.
func (m *Owner) Export(size uintptr) *bridge.Block {
	if e := m.exports.Load(); e != nil {
		return e.Take(size)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.exports.Load(); e != nil {
		return e.Take(size)
	}
	e, block := bridge.NewExports(size, (*exportedOwner)(m))
	if e != nil {
		m.exports.Store(e)
	}
	return block
}

// exportedOwner is an owner as its exported trees release it, if they end after the last reference.
type exportedOwner Owner

func (e *exportedOwner) Release() {
	m := (*Owner)(e)
	m.exports.Load().Ended()
	m.mu.Lock() // what other threads did with the owner happened before this
	users := m.users
	m.mu.Unlock()
	m.endAfter(users)
}

// endAfter ends the owner after the work that is pending on these devices now.
func (m *Owner) endAfter(users []device.Device) {
	if len(users) == 0 {
		m.endAfterEvent()
		return
	}
	users[0].AfterWork(func() { m.endAfter(users[1:]) })
}

// endAfterEvent ends the owner once Event is complete; at once, if it is nil.
func (m *Owner) endAfterEvent() {
	event := m.Event
	if event == nil {
		m.end()
		return
	}
	m.Event = nil
	defer CloseEvent(event)
	event.OnComplete(m.end)
}

// end releases all that the owner has, also if a callback of a producer, which may be written in Go,
// panics.
func (m *Owner) end() {
	defer m.endWrapped()
	defer m.unpin()
	if m.imported.Release == 0 {
		return
	}
	if m.ReleaseWith == nil {
		m.releaseImported()
	} else {
		m.ReleaseWith(m.releaseImported)
	}
}

func (m *Owner) unpin() {
	if m.rooted != 0 {
		m.pins.Unpin()
		handle.Take(m.rooted)
		RootedLive.Add(-1)
	}
}

func (m *Owner) endWrapped() {
	if m.wrapped != nil {
		m.wrapped.Release()
		m.wrapped = nil
	}
}

func (m *Owner) releaseImported() {
	defer ImportedLive.Add(-1)
	bridge.ReleaseMoved(&m.imported)
}
