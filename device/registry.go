package device

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// An Opener opens the device of one type with the given ordinal. It is not called for the same
// ordinal at the same time, and may open other devices. Open keeps the device and returns it
// from then on, unless the device has a method Gone() bool that reports true: then
// the Opener is called again. An error that means "not on this machine" wraps
// [ErrNotSupported].
type Opener func(ordinal int64) (Device, error)

var registry = struct {
	sync.Mutex
	openers map[Type]Opener
	uuids   map[Type]func() ([][16]byte, error)
	devices map[ID]*opening
	// probers is replaced under the lock when it changes, and the slice is never written to. It is
	// read without the lock: a validation asks for each buffer.
	probers atomic.Pointer[[]*prober]
}{
	openers: map[Type]Opener{CPU: openHost},
	uuids:   map[Type]func() ([][16]byte, error){},
	devices: map[ID]*opening{},
}

// prober is a device that Lookup asks.
type prober struct{ Prober }

// opening is one device that is being opened or is open.
type opening struct {
	sync.Mutex
	device Device // nil until an Opener succeeded
}

// Register makes open the backend for devices of type t. A backend calls it from
// an init function, and does nothing else there: no driver is loaded before a device is opened.
// Register panics if t has a backend already, or if open is nil.
func Register(t Type, open Opener) {
	if open == nil {
		panic(fmt.Sprintf("device: Register called with nil for %s", t))
	}
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.openers[t]; taken {
		panic(fmt.Sprintf("device: Register called twice for %s", t))
	}
	registry.openers[t] = open
}

// RegisterUUIDs makes list the function behind [UUIDs] for devices of type t. A backend whose devices are
// [Sharer]s calls it where it calls [Register]. It panics if t has a list already, or if list is nil.
func RegisterUUIDs(t Type, list func() ([][16]byte, error)) {
	if list == nil {
		panic(fmt.Sprintf("device: RegisterUUIDs called with nil for %s", t))
	}
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.uuids[t]; taken {
		panic(fmt.Sprintf("device: RegisterUUIDs called twice for %s", t))
	}
	registry.uuids[t] = list
}

// UUIDs returns the identities of the devices of type t in the order of their ordinals. It opens none. The
// error wraps [ErrNotSupported] where no backend has registered a list for the type, or the machine has no
// such device.
func UUIDs(t Type) ([][16]byte, error) {
	registry.Lock()
	list, ok := registry.uuids[t]
	registry.Unlock()
	if !ok {
		return nil, fmt.Errorf("device: UUIDs of %s: no backend has registered them: %w", t, ErrNotSupported)
	}
	return list()
}

// Open returns the device with this ID, and opens it at the first call. Where no
// backend is registered for the type, the error wraps [ErrNotSupported]: the program then
// imports a package that registers one, such as memory/cudaalloc.
func Open(id ID) (Device, error) {
	registry.Lock()
	open, ok := registry.openers[id.Type]
	if !ok {
		registry.Unlock()
		return nil, fmt.Errorf("device: open %s: no backend is registered for %s: %s: %w", id, id.Type, backendOf(id.Type), ErrNotSupported)
	}
	entry, ok := registry.devices[id]
	if !ok {
		entry = new(opening)
		registry.devices[id] = entry
	}
	registry.Unlock()

	// The registry is not locked here: an Opener may open other devices, and a
	// slow one delays no other.
	entry.Lock()
	defer entry.Unlock()
	if ends, ok := entry.device.(interface{ Gone() bool }); ok && ends.Gone() {
		entry.device = nil
	}
	if entry.device == nil {
		d, err := open(id.Ordinal)
		if err != nil {
			return nil, fmt.Errorf("device: open %s: %w", id, err)
		}
		entry.device = d
	}
	return entry.device, nil
}

// backendOf says which package registers a backend for a type.
func backendOf(t Type) string {
	switch t {
	case CUDA, CUDAHost, CUDAManaged:
		return "import github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	}
	return "this module has none, and Register adds one"
}

// AddProber adds p to the devices that [Lookup] asks, until remove is called. A backend calls it
// when it has opened a device, through [Open] or otherwise; where a driver knows the memory of all
// of its devices, one of them is enough. AddProber panics if p is nil.
func AddProber(p Prober) (remove func()) {
	if p == nil {
		panic("device: AddProber called with nil")
	}
	added := &prober{p}
	registry.Lock()
	defer registry.Unlock()
	changeProbers(func(all []*prober) []*prober { return append(all, added) })
	return func() {
		registry.Lock()
		defer registry.Unlock()
		changeProbers(func(all []*prober) []*prober {
			return slices.DeleteFunc(all, func(p *prober) bool { return p == added })
		})
	}
}

// changeProbers replaces the probers by change's result, which is given a copy. The registry is locked.
func changeProbers(change func([]*prober) []*prober) {
	var all []*prober
	if known := registry.probers.Load(); known != nil {
		all = slices.Clone(*known)
	}
	all = change(all)
	registry.probers.Store(&all)
}

// Lookup returns the allocation that p is in. It asks the devices that backends added with
// [AddProber], in the order in which they were added, and opens none. Memory that none of them
// knows is reported as the CPU's.
func Lookup(p Ptr) (Allocation, error) {
	probers := registry.probers.Load()
	if probers == nil {
		return Allocation{ID: CPUDevice().ID()}, nil
	}
	for _, asked := range *probers {
		found, err := asked.Lookup(p)
		if err != nil || found.ID.Type != CPU {
			return found, err
		}
	}
	return Allocation{ID: CPUDevice().ID()}, nil
}
