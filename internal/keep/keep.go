// Package keep waits for work on behalf of memory that the program has released, rather than on behalf of the
// program. A simulated driver checks that the program orders its work, and must not count the waits of this module as
// such an order: the program does not know when they happen. On any other driver these waits are like all others.
package keep

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

// Key stands for memory that was released, or for a function that waits for work. 0 is no key.
type Key uintptr

// Driver is a simulated driver, which is told on which waits the module acts.
type Driver interface {
	// GiveBack notes that memory is released: the work that the thread knows to be done is done with it.
	GiveBack(Key)
	// Act has the calling thread act on the waits for the key, and on those that it acted on before. It returns
	// the key of those.
	Act(Key) Key
	// Publish lets the program know of the waits for the key.
	Publish(Key)
	// Forget ends the key.
	Forget(Key)
	// Read notes that the work which has read the memory is done, as was waited for: it may be released.
	Read(Key, []device.Range)
}

var watched atomic.Bool

// Watch is called when a simulated driver is loaded.
func Watch() { watched.Store(true) }

// Watched reports whether there is a simulated driver in the process.
func Watched() bool { return watched.Load() }

// Known has the waits for one piece of memory. The zero value is ready. It does not move. Its key ends with
// [Known.Act], or with the object that it is part of.
type Known struct{ told atomic.Pointer[told] }

// told is the part that outlives the object: until then no other has its address, which is the key.
type told struct {
	mu      sync.Mutex
	drivers []Driver
}

func (t *told) key() Key { return Key(uintptr(unsafe.Pointer(t))) }

func (t *told) list() []Driver {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drivers
}

func (t *told) forget() {
	for _, d := range t.list() {
		d.Forget(t.key())
	}
}

// Add notes that a driver is waited for, and returns the key.
func (k *Known) Add(d Driver) Key {
	t := k.told.Load()
	if t == nil {
		t = new(told)
		if k.told.CompareAndSwap(nil, t) {
			runtime.AddCleanup(k, (*told).forget, t)
		} else {
			t = k.told.Load()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.drivers, d) {
		t.drivers = append(slices.Clip(t.drivers), d)
	}
	return t.key()
}

// IsEmpty reports whether there was no wait of which a driver is told.
func (k *Known) IsEmpty() bool { return k.told.Load() == nil }

// each calls f for each driver that was waited for.
func (k *Known) each(f func(Driver, Key)) {
	if t := k.told.Load(); t != nil {
		for _, d := range t.list() {
			f(d, t.key())
		}
	}
}

// Act calls f, which acts on the waits, and ends the key.
func (k *Known) Act(f func()) {
	k.each(func(d Driver, key Key) {
		next := f
		f = func() {
			defer d.Forget(key)
			d.GiveBack(key)
			Act(d, key, next)
		}
	})
	f()
}

// GiveBack is called before one of several references is released: the work that the thread knows to be done is done
// with the memory. The last reference may be released on a thread that does not know of it. home is the device of the
// memory, or nil.
func (k *Known) GiveBack(home any) {
	if d := driverOf(home); d != nil {
		k.Add(d)
	}
	k.each(Driver.GiveBack)
}

// Take adds the waits for other memory, on which the thread acts.
func (k *Known) Take(other *Known) {
	other.each(func(d Driver, _ Key) { d.GiveBack(k.Add(d)) })
}

// Publish is called before a function of the program that may pass the memory on.
func (k *Known) Publish() { k.each(Driver.Publish) }

// Read notes that the work which has read the memory is done. Others may hold references to it, and release it
// when this module has released its own.
func (k *Known) Read(ranges []device.Range) {
	k.each(func(d Driver, key Key) { d.Read(key, ranges) })
}

// Act calls f, which acts on the waits for the key.
func Act(d Driver, key Key, f func()) {
	runtime.LockOSThread() // the driver knows threads
	defer runtime.UnlockOSThread()
	before := d.Act(key)
	defer d.Act(before)
	f()
}

// waits calls f after the work of a device, a stream or an event, and reports whether it is one of a known backend.
var waits func(of any, known *Known, f func()) bool

// driverOf returns the simulated driver of a device, or nil.
var driverOf = func(any) Driver { return nil }

// SetBackend is called once, while packages are initialised.
func SetBackend(after func(of any, known *Known, f func()) bool, driver func(device any) Driver) {
	waits, driverOf = after, driver
}

// AfterWork calls f, a function of this module, after the work of a device or a stream. f acts on that wait and on
// those in known, which may be nil.
func AfterWork(of interface{ AfterWork(f func()) }, known *Known, f func()) {
	if waits == nil || !waits(of, known, f) {
		of.AfterWork(f)
	}
}

// OnComplete is AfterWork for an event.
func OnComplete(e interface{ OnComplete(f func()) }, known *Known, f func()) {
	if waits == nil || !waits(e, known, f) {
		e.OnComplete(f)
	}
}
