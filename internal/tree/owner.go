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

// Owner keeps alive what the buffers of a batch point into, for as long as
// anybody uses it: batches and arrays, their slices and columns, host views,
// and C structs that were exported from any of them. Each holds one reference.
//
// What it owns is either a foreign struct (imported), released through its
// callback, or Go values (wrapped), pinned once and released through Go.
type Owner struct {
	refs refcount.Count

	imported abi.ArrowArray // moved here from the producer's struct; Release 0 if wrapped
	// releaseWith, unless it is nil, is given the calling of the producer's callback.
	ReleaseWith func(release func())

	// Event is what release of imported waits for: WithReleaseAfterEvent. It is borrowed of the
	// producer, whose release ends it.
	Event device.Event

	wrapped handle.Releaser // the arrow.RecordBatch or arrow.Array, or a copy's deviceMemory
	// Home is the device in whose memory wrapped arrays are; nil for plain host memory.
	Home  device.Device
	Block *Block         // what is known of a copy's memory
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

var ImportedLive, RootedLive atomic.Int64

// Own returns an owner of a reference to Go values; it takes that reference.
func Own(v handle.Releaser) *Owner {
	m := &Owner{wrapped: v}
	m.refs.Init("memory of a batch")
	return m
}

// Pin pins one Go object until the last Release. Addresses of C memory are
// allowed and cost next to nothing. Only the constructor of an owner calls it.
func (m *Owner) Pin(pointer any) {
	m.pins.Pin(pointer)
	if m.rooted == 0 {
		m.rooted = handle.New(m)
		RootedLive.Add(1)
	}
}

// Adopt moves a foreign struct into a new owner and marks the source released.
func Adopt(a *abi.ArrowArray) *Owner {
	m := &Owner{imported: *a}
	m.refs.Init("memory of a batch")
	a.Release = 0
	ImportedLive.Add(1)
	return m
}

// Retain adds a reference to memory that somebody holds. Memory that was let go
// cannot come back: using it after the last release is a bug of the program,
// better seen here than as a crash later.
func (m *Owner) Retain() *Owner {
	m.refs.Retain()
	return m
}

// TryRetain adds a reference, unless the last one is gone.
func (m *Owner) TryRetain() bool { return m.refs.TryRetain() }

// UsedOn notes that work of dev may use the memory from now on.
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

// Release drops one reference. The last one lets the memory go: at once, on the
// calling thread, or, where work of a device may be using it, after that work, on a
// goroutine of the device's. It has this name because the handle of a pinned owner
// holds it.
func (m *Owner) Release() {
	if m.refs.Release() {
		m.endAfter(m.users)
	}
}

// endAfter ends the owner after the work that these devices have now.
func (m *Owner) endAfter(users []device.Device) {
	if len(users) == 0 {
		m.endAfterEvent()
		return
	}
	users[0].AfterWork(func() { m.endAfter(users[1:]) })
}

// endAfterEvent ends the owner once the event is complete that release waits for, if there
// is one.
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

func (m *Owner) end() {
	if m.imported.Release != 0 {
		if m.ReleaseWith == nil {
			m.releaseImported()
		} else {
			m.ReleaseWith(m.releaseImported)
		}
	}
	if m.rooted != 0 {
		m.pins.Unpin()
		handle.Take(m.rooted)
		RootedLive.Add(-1)
	}
	if m.wrapped != nil {
		m.wrapped.Release()
		m.wrapped = nil
	}
}

func (m *Owner) releaseImported() {
	a := &m.imported
	if m.ReleaseWith != nil || m.users != nil || m.rooted != 0 {
		// A callback that is written in Go may pass the struct to C, and cgo searches the
		// object that it stands in for Go pointers.
		apart := m.imported
		a = &apart
	}
	bridge.CallArrayRelease(a)
	ImportedLive.Add(-1)
}
