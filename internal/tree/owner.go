package tree

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/keep"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
)

// Owner keeps the memory of the buffers of a batch alive. Batches and arrays, their slices and
// columns and host views hold one reference each. C structs that were exported from any of them keep
// the memory alive without: see Export.
//
// It owns either a foreign struct (imported), which its callback releases, or Go values (wrapped),
// which are pinned once for C (runtime.Pinner).
//
// An owner may be a part of an object that is used again for other memory: see Reuse. Each use is a life, with a number.
type Owner struct {
	refs refcount.Lives
	// Reuse, unless it is nil, is called at the end of the memory, if nothing refers to the owner any more. The
	// owner is zero then, but for the number of its life and the memory of its exports.
	Reuse interface{ Reuse() }

	imported abi.ArrowArray // moved here from the producer's struct; Release 0 if wrapped
	// ReleaseWith, unless it is nil, gets the producer's callback to call, instead of a direct
	// call: WithReleaser.
	ReleaseWith func(release func())

	// Event is complete before imported is released: WithReleaseAfterEvent. It is the producer's,
	// whose release ends it.
	Event device.Event

	wrapped handle.Releaser // the arrow.RecordBatch or arrow.Array, or a copy's deviceMemory
	// Home is the device of the memory of wrapped arrays and of copies; nil for plain CPU memory.
	Home  device.Device
	Block *Block // describes the memory of a copy; nil otherwise
	pins  *Pins  // pins Go memory whose addresses exported structs hold; nil while there is none
	// rooted keeps an owner with pins reachable until its last Release. The runtime ends the
	// process when it collects a Pinner that still pins. A missing release must be a leak, not a
	// crash. Exports that begin later have the same handle, which is 0 here once they have ended it.
	rooted handle.Word

	// Size is how many bytes the memory has: of a copy and of a caller's memory exactly or at least,
	// of an import at least, once UsedOn was called; zero for wrapped memory.
	Size int64

	known keep.Known // what was waited for before references were released

	// users are the work that may use the memory: its release is deferred until that completes.
	mu    sync.Mutex
	users []user

	exports atomic.Pointer[bridge.Exports] // nil until the first export; set under mu
	kept    bridge.KeptExports             // the memory of the exports, of one life after the other
	lanes   atomic.Pointer[lanes]          // nil unless exports have met
	met     atomic.Int32                   // how often they did
}

// ImportedLive counts imported structs that were not released, RootedLive owners with pinned Go memory.
var (
	ImportedLive live.Counter
	RootedLive   live.Counter
)

// Own returns an owner of a reference to Go values; it takes that reference.
func Own(v handle.Releaser) *Owner {
	m := new(Owner)
	m.Own(v)
	return m
}

// Join returns an owner of the memory of several owners, with a reference to each: nodes are in their memory.
func Join(owners []*Owner, nodes []Node) *Owner {
	j := new(joined)
	for _, m := range owners {
		if !slices.Contains(j.owners, m) {
			j.owners = append(j.owners, m)
		}
	}
	if len(j.owners) == 1 {
		return owners[0].Retain()
	}
	own := Own(j)
	j.known = &own.known
	own.Size = Bytes(nodes)
	for _, m := range j.owners {
		if home := m.Retain().lender().Home; own.Home == nil {
			own.Home = home
		}
	}
	return own
}

// joined is references to owners.
type joined struct {
	owners []*Owner
	known  *keep.Known // the waits for all of them together
}

// Release drops the references, even if a callback of a producer panics.
func (j *joined) Release() {
	for _, m := range j.owners {
		m.Known().Take(j.known)
		defer m.Release()
	}
}

// kind names owners in panics.
const kind = "memory of a batch"

// Own makes m, which is zero but for what Reuse says, the owner of a reference to Go values; it takes that reference.
func (m *Owner) Own(v handle.Releaser) {
	m.wrapped = v
	m.refs.Begin()
}

// Pinner returns what pins Go objects until the last Release, for code that makes the owner, and pins
// many.
func (m *Owner) Pinner() *Pins {
	m.root()
	return m.pins
}

// PinMore is Pin for a caller that holds a reference: others may do so at the same time.
func (m *Owner) PinMore(pointer any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Pin(pointer)
}

// Pin pins one Go object until the last Release. An address of C memory is allowed and costs almost
// nothing. Only code that makes the owner calls it.
func (m *Owner) Pin(pointer any) {
	m.root()
	m.pins.Pin(pointer)
}

// PinEvent returns the address of a native event handle, to which sync_event points. The handle is alone in its allocation: with a Go
// pointer beside it, cgo refuses to pass a struct of C that has the address.
func (m *Owner) PinEvent(handle uintptr) uintptr {
	cell := new(uintptr)
	*cell = handle
	m.Pin(cell)
	// mutant: return 0 * uintptr(unsafe.Pointer(cell))
	return uintptr(unsafe.Pointer(cell))
}

func (m *Owner) root() {
	if m.pins == nil {
		m.pins = unused.Get().(*Pins)
		m.rooted = handle.NewNear(uint32(live.Near(6)), (*exportedOwner)(m))
		RootedLive.Add(1)
	}
}

// Adopt moves a foreign struct into a new owner and marks the source released.
func Adopt(a *abi.ArrowArray) *Owner {
	m := new(Owner)
	m.Adopt(a)
	return m
}

// Adopt makes m, which is zero but for what Reuse says, the owner of a foreign struct. It moves the struct and marks the
// source released.
func (m *Owner) Adopt(a *abi.ArrowArray) {
	m.imported = *a
	m.refs.Begin()
	a.Release = 0
	ImportedLive.Add(1)
}

// Imported returns the foreign struct. It is valid while the caller holds a reference.
func (m *Owner) Imported() *abi.ArrowArray { return &m.imported }

// Retain adds a reference for a caller that holds one. After the last Release it panics, rather
// than letting the program use freed memory.
func (m *Owner) Retain() *Owner {
	m.refs.Retain(kind)
	return m
}

// Life returns the number of the life. The caller holds a reference.
func (m *Owner) Life() uint32 { return m.refs.Number() }

// TryRetain adds a reference in a life of the owner, and reports whether there was one.
func (m *Owner) TryRetain(life uint32) bool {
	ok, _ := m.refs.TryRetain(life)
	return ok
}

// Alive reports whether there is a reference in a life of the owner. Unless the caller holds one, the answer may be out of
// date at once.
func (m *Owner) Alive(life uint32) bool { return m.refs.Alive(life) }

// borrower holds a reference to an owner, whose memory it uses.
type borrower interface{ Owner() *Owner }

// lender returns the owner of the memory: another one, if m only adds an event to its memory.
func (m *Owner) lender() *Owner {
	if b, ok := m.wrapped.(borrower); ok {
		return b.Owner().lender()
	}
	return m
}

// UsedOn records that work on the stream may use the memory from now on; nil: on any stream of the
// device. nodes returns the nodes of an import, of which some may be missing; it may be nil.
func (m *Owner) UsedOn(dev device.Device, s device.Stream, nodes func() []Node) {
	m = m.lender()
	m.mu.Lock()
	m.users = withUser(m.users, user{dev, s})
	unknown := m.Size == 0 && m.wrapped == nil
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
	if m = m.lender(); m.Home != nil {
		m.UsedOn(m.Home, nil, nil)
	}
}

// Release drops one reference. The last one releases the memory: at once, on the calling thread,
// or, if work of a device may be using it, after that work, on a goroutine of the device's backend.
func (m *Owner) Release() {
	if keep.Watched() && (!m.refs.Sole() || m.exports.Load() != nil) {
		m.known.GiveBack(m.lender().Home)
	}
	if !m.refs.Release(kind) {
		return
	}
	if all := m.lanes.Load(); all != nil {
		all.close(m)
	} else if m.closeExports() {
		m.endAfter(m.users)
	}
}

// closeExports closes the owner's own exports, and reports whether there are no trees.
func (m *Owner) closeExports() bool {
	e := m.exports.Load()
	if e == nil {
		return true
	}
	same := e.Handle() == m.rooted
	if !closeExports(e) {
		return false
	}
	if same {
		m.rooted = 0
	}
	return true
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
	e, block := m.newExports(size)
	if e != nil {
		m.exports.Store(e)
	}
	return block
}

func (m *Owner) newExports(size uintptr) (*bridge.Exports, *bridge.Block) {
	if m.Reuse == nil {
		return bridge.NewExports(size, (*exportedOwner)(m), m.rooted)
	}
	return m.kept.New(size, (*exportedOwner)(m), m.rooted)
}

// exportedOwner is an owner as its exported trees release it, if they end after the last reference.
type exportedOwner Owner

func (e *exportedOwner) Release() {
	m := (*Owner)(e)
	exports := m.exports.Load()
	if exports.Handle() == m.rooted {
		m.rooted = 0
	}
	exports.Ended()
	m.partEnded()
}

// endAfter ends the owner after the work of the users that is pending now, and after Event.
func (m *Owner) endAfter(users []user) {
	if len(users) == 0 {
		m.endAfterEvent()
		return
	}
	m.Reuse = nil
	left := new(atomic.Int32)
	left.Store(int32(len(users)))
	counted := countWaiting(users[0].dev, m.bytes())
	for _, u := range users {
		u.afterWork(&m.known, func() {
			if left.Add(-1) == 0 {
				counted()
				m.endAfterEvent()
			}
		})
	}
}

// endAfterEvent ends the owner once Event is complete; at once, if it is nil.
func (m *Owner) endAfterEvent() {
	event := m.Event
	if event == nil {
		m.end()
		return
	}
	m.Event, m.Reuse = nil, nil
	defer CloseEvent(event)
	keep.OnComplete(event, &m.known, m.end)
}

// end releases all that the owner has, also if a callback of a producer, which may be written in Go,
// panics.
func (m *Owner) end() {
	if !m.known.IsEmpty() {
		m.known.Act(m.endAll)
		return
	}
	m.endAll() // without the allocation of a function
	if m.Reuse != nil && m.ReleaseWith == nil {
		m.endLife()
	}
}

// endLife makes the owner ready for another life. Nothing refers to it: its last reference is gone, and so are its exports,
// its users and its event, and the release callback has returned.
func (m *Owner) endLife() {
	reuse := m.Reuse
	m.Reuse, m.rooted, m.imported = nil, 0, abi.ArrowArray{}
	if m.exports.Load() != nil {
		m.exports.Store(nil)
	}
	if m.met.Load() != 0 {
		m.met.Store(0)
	}
	reuse.Reuse()
}

func (m *Owner) endAll() {
	defer m.endWrapped()
	defer m.unpin()
	if m.imported.Release == 0 {
		return
	}
	m.known.Publish()
	if m.ReleaseWith == nil {
		m.releaseImported()
	} else {
		m.ReleaseWith(m.releaseImported)
	}
}

func (m *Owner) unpin() {
	if m.pins == nil {
		return
	}
	m.pins.Unpin()
	unused.Put(m.pins)
	m.pins = nil
	if m.rooted != 0 {
		handle.Take(m.rooted)
	}
	RootedLive.Add(-1)
}

// Known is what was waited for before references to the memory were released.
func (m *Owner) Known() *keep.Known { return &m.lender().known }

// ownedByProgram is memory that ends by a function of the program.
type ownedByProgram interface{ OwnedByProgram() }

func (m *Owner) endWrapped() {
	if m.wrapped != nil {
		if _, ok := m.wrapped.(ownedByProgram); ok {
			m.known.Publish()
		}
		m.wrapped.Release()
		m.wrapped = nil
	}
}

func (m *Owner) releaseImported() {
	defer ImportedLive.Add(-1)
	bridge.ReleaseMoved(&m.imported)
}
