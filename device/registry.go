package device

import (
	"fmt"
	"sync"
)

// An Opener returns the device of one type with the given ordinal. It is called
// at most once per ordinal at a time, and may open other devices; a device that it
// returns is kept and returned by every later Open, unless it has a method Gone() bool that
// reports true: then it is opened anew. An error that means "not on this machine" wraps
// ErrNotSupported.
type Opener func(ordinal int64) (Device, error)

var registry = struct {
	sync.Mutex
	openers map[Type]Opener
	devices map[ID]*opening
	lookups []func(Ptr) (Allocation, error)
}{
	openers: map[Type]Opener{CPU: openHost},
	devices: map[ID]*opening{},
}

// opening is one device that is being opened or is open.
type opening struct {
	sync.Mutex
	device Device // nil until an Opener succeeded
}

// Register makes open the backend for devices of type t. Backends call it from
// an init function, and do nothing else there: no driver is loaded before
// a device is opened. Registering a type twice, or nil, panics.
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

// Open returns the device with this id, opening it at the first call. Where no
// backend is registered for the type, the error wraps [ErrNotSupported]; import
// the package that has one.
func Open(id ID) (Device, error) {
	registry.Lock()
	open, ok := registry.openers[id.Type]
	if !ok {
		registry.Unlock()
		return nil, fmt.Errorf("device: open %s: no backend is registered for this device type: %w", id, ErrNotSupported)
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

// RegisterLookup makes ask a part of [Lookup]: a function that answers as Lookup does, and
// asks only what is open. Backends call it from an init function. Registering nil panics.
func RegisterLookup(ask func(Ptr) (Allocation, error)) {
	if ask == nil {
		panic("device: RegisterLookup called with nil")
	}
	registry.Lock()
	defer registry.Unlock()
	registry.lookups = append(registry.lookups, ask)
}

// Lookup asks the devices that this process has open what memory there is at p. It opens
// none. Memory that none of them knows is reported as the CPU's.
func Lookup(p Ptr) (Allocation, error) {
	registry.Lock()
	lookups := registry.lookups // never changed, only appended to
	registry.Unlock()
	for _, ask := range lookups {
		found, err := ask(p)
		if err != nil || found.ID.Type != CPU {
			return found, err
		}
	}
	return Allocation{ID: CPUDevice().ID()}, nil
}
