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
	"github.com/arrowdevice/arrowdevice/internal/watch"
)

// Key stands for memory that was released, or for a function that waits for work. 0 is no key.
type Key uintptr

// Driver is a simulated driver, which is told on which waits the module acts.
type Driver interface {
	// GiveBack notes that memory is released: everything that the thread has waited for no longer uses it.
	GiveBack(Key)
	// Act makes the thread's next calls count as ordered after the waits for the key, and after those for the key
	// that it acted on before, which it returns.
	Act(Key) Key
	// Publish lets the program know of the waits for the key.
	Publish(Key)
	// Forget ends the key.
	Forget(Key)
	// Read notes that the work which has read the memory is done, as was waited for: it may be released.
	Read(Key, []device.Range)
}

// Watch is called when a simulated driver is loaded.
func Watch() { watch.Begin(func() watch.Waits { return new(Known) }) }

// Known has the waits for one piece of memory; it implements [watch.Waits]. The zero value is ready. Its key ends with
// [Known.End], or with the object.
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

// each calls f for each driver that was waited for.
func (k *Known) each(f func(Driver, Key)) {
	if t := k.told.Load(); t != nil {
		for _, d := range t.list() {
			f(d, t.key())
		}
	}
}

// End implements watch.Waits.
func (k *Known) End(callsProgram bool, free func()) {
	if callsProgram {
		next := free
		free = func() {
			k.Publish()
			next()
		}
	}
	k.each(func(d Driver, key Key) {
		next := free
		free = func() {
			defer d.Forget(key)
			d.GiveBack(key)
			Act(d, key, next)
		}
	})
	free()
}

// GiveBack implements watch.Waits.
func (k *Known) GiveBack(home device.Device) {
	if d := driverOf(home); d != nil {
		k.Add(d)
	}
	k.each(Driver.GiveBack)
}

// Take implements watch.Waits.
func (k *Known) Take(other watch.Waits) {
	if of, ok := other.(*Known); ok {
		of.each(func(d Driver, _ Key) { d.GiveBack(k.Add(d)) })
	}
}

// Publish implements watch.Waits.
func (k *Known) Publish() { k.each(Driver.Publish) }

// Read implements watch.Waits. Others may hold references to the memory, and release it when this module has released
// its own.
func (k *Known) Read(ranges []device.Range) {
	k.each(func(d Driver, key Key) { d.Read(key, ranges) })
}

// AfterWork implements watch.Waits.
func (k *Known) AfterWork(of any, f func()) bool { return waits != nil && waits(of, k, f) }

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
