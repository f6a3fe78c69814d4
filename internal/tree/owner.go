package tree

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/watch"
)

// Owner keeps the memory of the buffers of a batch alive. Batches and arrays, their slices and
// columns, host views and exports hold one reference each. The last Release ends the memory; see end.
//
// It owns either a foreign struct, which its callback releases, or Go values, which are pinned for C.
type Owner struct {
	refs refcount.Count

	foreign abi.ArrowArray  // moved here from the producer's struct; Release 0 if it owns values
	values  handle.Releaser // the arrow.RecordBatch or arrow.Array, or a copy's deviceMemory
	pins    *pins           // pins Go memory whose addresses exported structs hold; nil while there is none

	// Home is the device of the memory of wrapped arrays and of copies; nil for plain CPU memory.
	Home  device.Device
	Block *Block // describes the memory of a copy; nil otherwise
	// Size is how many bytes the memory has: of a copy and of a caller's memory exactly or at least,
	// of an import at least, once UsedOn was called; zero for wrapped memory.
	Size int64

	mu     sync.Mutex // guards pins, Size and ending.users where several goroutines change them
	ending ending
}

// ImportedLive counts imported structs that were not released.
var ImportedLive live.Counter

// Own returns an owner of a reference to Go values; it takes that reference.
func Own(v handle.Releaser) *Owner {
	m := new(Owner)
	m.Own(v)
	return m
}

// kind names owners in panics.
const kind = "memory of a batch"

// Own makes m, which is zero, the owner of a reference to Go values; it takes that reference.
func (m *Owner) Own(v handle.Releaser) {
	m.values = v
	m.refs.Init(kind)
}

// Adopt moves a foreign struct into a new owner and marks the source released.
func Adopt(a *abi.ArrowArray) *Owner {
	m := new(Owner)
	m.Adopt(a)
	return m
}

// Adopt makes m, which is zero, the owner of a foreign struct. It moves the struct and marks the source released.
func (m *Owner) Adopt(a *abi.ArrowArray) {
	m.foreign = *a
	m.refs.Init(kind)
	a.Release = 0
	ImportedLive.Add(1)
}

// Imported returns the foreign struct. It is valid while the caller holds a reference.
func (m *Owner) Imported() *abi.ArrowArray { return &m.foreign }

// Retain adds a reference for a caller that holds one. After the last Release it panics, rather
// than letting the program use freed memory.
func (m *Owner) Retain() *Owner {
	m.refs.Retain()
	return m
}

// TryRetain adds a reference, unless the last Release has been called, and reports whether it did.
func (m *Owner) TryRetain() bool { return m.refs.TryRetain() }

// Alive reports whether there is a reference. Unless the caller holds one, the answer may be out of date at once.
func (m *Owner) Alive() bool { return m.refs.Alive() }

// borrower holds a reference to an owner, whose memory it uses.
type borrower interface{ Owner() *Owner }

// base returns the owner that holds the memory: another one, if m only adds an event to its memory.
func (m *Owner) base() *Owner {
	if b, ok := m.values.(borrower); ok {
		return b.Owner().base()
	}
	return m
}

// UsedOn records that work on the stream may use the memory from now on; nil: on any stream of the
// device. nodes returns the nodes of an import, of which some may be missing; it may be nil.
func (m *Owner) UsedOn(dev device.Device, s device.Stream, nodes func() []Node) {
	m = m.base()
	m.mu.Lock()
	m.ending.users = withUser(m.ending.users, user{dev, s})
	unknown := m.Size == 0 && m.values == nil
	m.mu.Unlock()
	if _, counts := dev.(device.WaitCounter); counts && unknown && nodes != nil {
		size := Bytes(nodes()) // which may need the lock
		m.mu.Lock()
		m.Size = max(m.Size, size)
		m.mu.Unlock()
	}
}

// MarkExported defers the release of device memory until pending work of the device completes:
// a consumer may use it on streams unknown to us, and release it in the order of its stream.
// That holds for every kind of memory: an allocator of pinned memory would give it to the next
// user at once. Memory of a producer, and of a caller of NewArray, has a release rule of its own.
func (m *Owner) MarkExported() {
	if m = m.base(); m.Home != nil {
		m.UsedOn(m.Home, nil, nil)
	}
}

// ReleaseAfter has the end of an import wait for the event, and closes it: WithReleaseAfterEvent.
func (m *Owner) ReleaseAfter(event device.Event) { m.ending.event = event }

// ReleaseWith gives a function the producer's callback to call, in place of a direct call: WithReleaser.
func (m *Owner) ReleaseWith(f func(release func())) { m.ending.release = f }

// Release drops one reference. The last one releases the memory: at once, on the calling thread,
// or, if work of a device may be using it, after that work, on a goroutine of the device's backend.
func (m *Owner) Release() {
	if watch.Begun() && !m.refs.Sole() {
		m.ending.waits.GiveBack(m.base().Home)
	}
	if m.refs.Release() {
		m.end()
	}
}

// end ends the memory after the last reference: after the work that may use it, and the event that its import named.
func (m *Owner) end() {
	if len(m.ending.users) == 0 && m.ending.event == nil {
		m.free() // without the allocation of a function
		return
	}
	m.afterUsers(func() { m.afterEvent(m.free) })
}

// free releases all that the owner has.
func (m *Owner) free() {
	if m.ending.waits.Empty() {
		m.freeAll() // without the allocation of a function
		return
	}
	_, program := m.values.(ownedByProgram)
	m.ending.waits.End(program || m.foreign.Release != 0, m.freeAll)
}

// ownedByProgram is memory that ends by a function of the program.
type ownedByProgram interface{ OwnedByProgram() }

// freeAll releases the rest even if a callback of a producer, which may be written in Go, panics.
func (m *Owner) freeAll() {
	defer m.freeValues()
	defer m.pins.free()
	switch {
	case m.foreign.Release == 0:
	case m.ending.release == nil:
		m.releaseForeign()
	default:
		m.ending.release(m.releaseForeign)
	}
}

func (m *Owner) releaseForeign() {
	defer ImportedLive.Add(-1)
	bridge.ReleaseMoved(&m.foreign)
}

func (m *Owner) freeValues() {
	if m.values != nil {
		m.values.Release()
		m.values = nil
	}
}
