// Package keep waits for work on behalf of memory that is given back, rather than for the program. A simulated
// driver checks that the program's work is ordered, and must not take for an order what this module learns at times
// of its own. On any other driver these waits are like all others.
package keep

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

// Key stands for memory that is given back, or for a function that waits for work. 0 is no key.
type Key uintptr

// Driver is a simulated driver, which is told on which waits the module acts.
type Driver interface {
	// GiveBack notes that memory is given back: what the thread knows now is known about it.
	GiveBack(Key)
	// Act has the calling thread act on what was waited for, for the key, and on what it acted on before. It returns
	// the key of that.
	Act(Key) Key
	// Publish has the program learn what was waited for.
	Publish(Key)
	// Forget ends the key.
	Forget(Key)
	// Read notes that the work which has read the memory is done, as was waited for: it may be given back.
	Read(Key, []device.Range)
}

var watched atomic.Bool

// Watch is called when a simulated driver is loaded.
func Watch() { watched.Store(true) }

// Watched reports whether there is a simulated driver in the process.
func Watched() bool { return watched.Load() }

// Known is what was waited for about one piece of memory. The zero value is ready. It does not move.
type Known struct{ drivers atomic.Pointer[[]Driver] }

// Key returns the key of the memory.
func (k *Known) Key() Key { return Key(uintptr(unsafe.Pointer(k))) }

// Add notes that a driver is waited for.
func (k *Known) Add(d Driver) {
	for {
		old := k.drivers.Load()
		list := []Driver{d}
		if old != nil {
			for _, other := range *old {
				if other == d {
					return
				}
			}
			list = append(list, *old...)
		}
		if k.drivers.CompareAndSwap(old, &list) {
			return
		}
	}
}

// IsEmpty reports whether nothing was waited for that a driver wants to know.
func (k *Known) IsEmpty() bool { return k.drivers.Load() == nil }

func (k *Known) list() []Driver {
	if list := k.drivers.Load(); list != nil {
		return *list
	}
	return nil
}

// Act calls f, which acts on what was waited for, and ends the key.
func (k *Known) Act(f func()) {
	for _, d := range k.list() {
		next := f
		f = func() {
			defer d.Forget(k.Key())
			d.GiveBack(k.Key())
			Act(d, k.Key(), next)
		}
	}
	f()
}

// GiveBack is called before a reference is released: who releases it knows what the thread knows.
func (k *Known) GiveBack() {
	for _, d := range k.list() {
		d.GiveBack(k.Key())
	}
}

// Take adds what the thread acts on, which was waited for about other memory.
func (k *Known) Take(other *Known) {
	for _, d := range other.list() {
		k.Add(d)
		d.GiveBack(k.Key())
	}
}

// Publish is called before a function of the program that may give the memory to anybody.
func (k *Known) Publish() {
	for _, d := range k.list() {
		d.Publish(k.Key())
	}
}

// Read notes that the work which has read the memory is done. Others may hold references to it, and give it back
// when this module has released its own.
func (k *Known) Read(ranges []device.Range) {
	for _, d := range k.list() {
		d.Read(k.Key(), ranges)
	}
}

// Act calls f, which acts on what was waited for, for the key.
func Act(d Driver, key Key, f func()) {
	runtime.LockOSThread() // the driver knows threads
	defer runtime.UnlockOSThread()
	before := d.Act(key)
	defer d.Act(before)
	f()
}

// waits calls f after the work of a device, a stream or an event, and reports whether it knows what that is.
var waits func(of any, known *Known, f func()) bool

// SetWaits is called once, while packages are initialised.
func SetWaits(f func(of any, known *Known, f func()) bool) { waits = f }

// AfterWork calls f, a function of this module, after the work of a device or a stream. f acts on that, and on what
// was waited for before; known is nil where that is nothing.
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
