package device

import (
	"fmt"
	"sync"
)

// An Opener returns the device of one type with the given ordinal. It is called
// at most once per ordinal at a time; a device that it returns is kept and
// returned by every later Open. An error that means "not on this machine" wraps
// ErrNotSupported.
type Opener func(ordinal int64) (Device, error)

var registry = struct {
	sync.Mutex
	openers map[Type]Opener
	devices map[ID]Device
}{
	openers: map[Type]Opener{CPU: openHost},
	devices: map[ID]Device{},
}

// Register makes open the backend for devices of type t. Backends call it from
// an init function, and do nothing else there: no driver is loaded before
// somebody opens a device. Registering a type twice panics.
func Register(t Type, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.openers[t]; taken {
		panic(fmt.Sprintf("device: Register called twice for %s", t))
	}
	registry.openers[t] = open
}

// Open returns the device with this id, opening it at the first call. Where no
// backend is registered for the type, the error wraps [ErrNotSupported]: import
// the package that has one, memory/cudaalloc for CUDA say.
func Open(id ID) (Device, error) {
	registry.Lock()
	defer registry.Unlock()
	if d, ok := registry.devices[id]; ok {
		return d, nil
	}
	open, ok := registry.openers[id.Type]
	if !ok {
		return nil, fmt.Errorf("device: open %s: no backend is registered for this device type: %w", id, ErrNotSupported)
	}
	d, err := open(id.Ordinal)
	if err != nil {
		return nil, fmt.Errorf("device: open %s: %w", id, err)
	}
	registry.devices[id] = d
	return d, nil
}
