// Package watch is where a simulated driver hears of the waits that this module makes on behalf of memory that the
// program has released. Such a driver checks that a program orders its work, and must not take these waits, of which the
// program does not know, for the program's. With any other driver there are no Waits, and a Place does nothing.
package watch

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
)

// Waits are this module's waits for one piece of memory, or for the sources of a reader's copies. The methods of Place
// say when they are called.
type Waits interface {
	// GiveBack notes that everything that the thread has waited for no longer uses the memory. The last reference may be
	// released on a thread that has not waited.
	GiveBack(home device.Device)
	// AfterWork does nothing, and reports false, for the work of an unknown backend.
	AfterWork(of any, f func()) bool
	// End calls free, which acts on the waits, and ends them. A function of the program knows of them.
	End(callsProgram bool, free func())
	Publish()
	Take(Waits)
	Read([]device.Range)
}

var newWaits atomic.Pointer[func() Waits]

// Begin is called when a simulated driver is loaded, with a function that returns Waits without a wait.
func Begin(f func() Waits) { newWaits.Store(&f) }

// Begun reports whether there is a simulated driver in the process.
func Begun() bool { return newWaits.Load() != nil }

// Place has the Waits of the object that it is part of, which are made for the first wait. The zero value is ready.
type Place struct{ waits atomic.Pointer[Waits] }

// made returns the waits, or nil if there are none.
func (p *Place) made() Waits {
	if w := p.waits.Load(); w != nil {
		return *w
	}
	return nil
}

// make returns the waits, or nil if there is no simulated driver.
func (p *Place) make() Waits {
	if w := p.made(); w != nil {
		return w
	}
	f := newWaits.Load()
	if f == nil {
		return nil
	}
	w := (*f)()
	if !p.waits.CompareAndSwap(nil, &w) {
		return p.made()
	}
	return w
}

// GiveBack is called before one of several references to memory is released; see [Waits]. home is the device of the
// memory, or nil.
func (p *Place) GiveBack(home device.Device) {
	w := p.made()
	if w == nil && home != nil {
		w = p.make()
	}
	if w != nil {
		w.GiveBack(home)
	}
}

// AfterWork calls f, a function of this module, after the work of a device or a stream, or after an event, for which the
// program would call wait.
func (p *Place) AfterWork(of any, wait func(f func()), f func()) {
	if w := p.make(); w == nil || !w.AfterWork(of, f) {
		wait(f)
	}
}

// Empty reports whether there are no waits.
func (p *Place) Empty() bool { return p.made() == nil }

// End calls free, which ends the object, unless it is Empty. callsProgram reports that free calls a function of the
// program or of another library, which may pass the memory on.
func (p *Place) End(callsProgram bool, free func()) { p.made().End(callsProgram, free) }

// Take adds the waits of another object, on which the thread acts.
func (p *Place) Take(from *Place) {
	if w := from.made(); w != nil {
		p.make().Take(w)
	}
}

// Publish lets the program know of the waits.
func (p *Place) Publish() {
	if w := p.made(); w != nil {
		w.Publish()
	}
}

// Read notes that the work which has read the ranges is done: the program may release them.
func (p *Place) Read(ranges []device.Range) {
	if w := p.made(); w != nil {
		w.Read(ranges)
	}
}
